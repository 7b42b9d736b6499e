package avs

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// createInternalEval creates the evaluation that the instance itself reports to.
type createInternalEval struct{ *shared }

// Name implements worker.Step.
func (createInternalEval) Name() string { return "AVS_Create_Internal_Eval_Step" }

// Describe implements worker.Described.
func (s createInternalEval) Describe() worker.Description {
	return worker.Description{
		Summary: "Creates the evaluation that the instance itself reports to.",
		Calls:   s.creationCalls(),
		Details: []string{"internalId", "formerInternalId"},
	}
}

// Run implements worker.Step.
func (s createInternalEval) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	if d.InternalID != 0 {
		return op, 0, nil
	}
	return s.ensure(ctx, op, internal, "internalId", d.FormerInternalID, log)
}
