package avs

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// createExternalEval creates the evaluation that checks the instance's public address.
func (s *shared) createExternalEval(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if isSmallPlan(op) {
		return worker.Skip(op, "instances of plan "+op.Plan.Name+" have no external evaluation")
	}
	d, err := read(op)
	if err != nil {
		return op, 0, err
	}
	if d.ExternalID != 0 {
		return op, 0, nil
	}
	return s.ensure(ctx, op, external, "externalId", d.FormerExternalID, log)
}
