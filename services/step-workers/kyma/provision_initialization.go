package kyma

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// provisionInitialization selects the version of Kyma for a new runtime.
// Each repetition of the stage selects the version again, as do the steps that use it.
func (s decider) provisionInitialization(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	decided, err := s.forOrder(ctx, op)
	return s.save(ctx, op, log, decided, err)
}
