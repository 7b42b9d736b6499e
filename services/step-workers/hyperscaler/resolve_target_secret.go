package hyperscaler

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// resolveTargetSecret finds the account in which the runtime is created.
type resolveTargetSecret struct {
	cfg  Config
	pool *pool
}

// Name implements worker.Step.
func (resolveTargetSecret) Name() string { return "Resolve_Target_Secret" }

// Run implements worker.Step.
func (s resolveTargetSecret) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	var d Details
	if err := op.Details(Name, &d); err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	if d.TargetSecret != "" {
		return op, 0, nil
	}
	var given Details
	if err := op.Parameters(&given); err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	if given.TargetSecret != "" {
		return op, 0, op.SaveDetails(given)
	}
	w, err := wanted(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	secret, err := s.pool.resolve(ctx, w)
	if errors.Is(err, ErrEmptyPool) {
		return outcome.Again(op, component, s.cfg.RetryInterval, err)
	}
	if err != nil {
		return outcome.Of(op, component, s.cfg.RetryInterval, err)
	}
	log.Info("account resolved", "target_secret", secret)
	return op, 0, op.SaveDetails(Details{TargetSecret: secret})
}
