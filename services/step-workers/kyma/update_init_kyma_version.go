package kyma

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// updateInitKymaVersion finds the runtime's version of Kyma, which an update does not change.
func (s decider) updateInitKymaVersion(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	var saved Details
	// The package reconciler reads the details of this package, so it cannot be imported here.
	var applied struct {
		KymaVersion string `json:"kymaVersion"`
	}
	if err := errors.Join(op.Details(Name, &saved), op.Details("reconciler", &applied)); err != nil {
		return worker.Fail(op, &worker.Error{Err: err})
	}
	if version := cmp.Or(applied.KymaVersion, saved.Version); version != "" {
		// It differs from the saved version if the last upgrade did not reach the runtime, or was a dry run.
		return s.save(ctx, op, log, Details{Version: version, Origin: cmp.Or(saved.Origin, OriginDefaults)}, nil)
	}
	decided, err := s.forOrder(ctx, op)
	return s.save(ctx, op, log, decided, err)
}
