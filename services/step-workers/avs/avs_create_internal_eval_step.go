package avs

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// createInternalEval creates the evaluation that the instance itself reports to.
func (s *shared) createInternalEval(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return op, 0, err
	}
	if d.InternalID != 0 {
		return op, 0, nil
	}
	return s.ensure(ctx, op, internal, "internalId", d.FormerInternalID, log)
}
