package avs

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// createExternalEval creates the evaluation that checks the instance's public address.
type createExternalEval struct{ *shared }

// Name implements worker.Step.
func (createExternalEval) Name() string { return "AVS_Create_External_Eval_Step" }

// Describe implements worker.Described.
func (s createExternalEval) Describe() worker.Description {
	return worker.Description{
		Summary: "Creates the evaluation that checks the public address of the instance.",
		Calls:   s.creationCalls(),
		Details: []string{"externalId", "formerExternalId"},
	}
}

// Run implements worker.Step.
func (s createExternalEval) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if isSmallPlan(op) {
		return worker.Skip(op, "instances of plan "+op.Plan.Name+" have no external evaluation")
	}
	d, err := read(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	if d.ExternalID != 0 {
		return op, 0, nil
	}
	return s.ensure(ctx, op, external, "externalId", d.FormerExternalID, log)
}
