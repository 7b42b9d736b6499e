package hyperscaler

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// resolveTargetSecret selects the account of the runtime.
func (s *shared) resolveTargetSecret(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	var d Details
	if err := op.Details(Name, &d); err != nil {
		return op, 0, err
	}
	stale, err := s.stale(op, d)
	if err != nil {
		return op, 0, err
	}
	if d.TargetSecret != "" && !stale {
		return op, 0, nil
	}
	w, err := wanted(op)
	if err != nil {
		return op, 0, err
	}
	secret, err := s.pool.resolve(ctx, w)
	if errors.Is(err, ErrEmptyPool) {
		return worker.Retry(op, s.cfg.RetryInterval, err)
	}
	if err != nil {
		return op, s.cfg.RetryInterval, err
	}
	log.Info("account resolved", "target_secret", secret)
	d = Details{TargetSecret: secret}
	if !w.shared {
		d.ClaimedAt, d.Tenant = s.pool.now().UTC(), w.tenant
	}
	return op, 0, op.SaveDetails(d)
}

// stale reports whether the account was claimed so long ago, without a runtime, that another tenant may have it.
func (s *shared) stale(op worker.Operation, d Details) (bool, error) {
	if d.ClaimedAt.IsZero() || s.pool.now().Sub(d.ClaimedAt) < s.cfg.ClaimTime/2 {
		return false, nil
	}
	// The package provisioner reads the details of this package, so it cannot be imported here. A runtime without the id of its creation
	// was removed, or its removal has begun.
	var runtime struct {
		OperationID string `json:"operationId"`
	}
	err := op.Details("provisioner", &runtime)
	return runtime.OperationID == "", err
}
