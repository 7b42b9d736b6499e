package hyperscaler

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// releaseSubscription marks the tenant's account for cleaning after its last cluster is removed.
func (s *shared) releaseSubscription(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if op.Plan.Name == "trial" || op.Plan.Name == "own_cluster" {
		return worker.Skip(op, "instances of plan "+op.Plan.Name+" have no account of their own")
	}
	w, err := wanted(op)
	if err != nil {
		// An incomplete instance never claimed an account, so its deprovisioning must not fail here.
		return worker.Skip(op, "there is no account to release: "+err.Error())
	}
	marked, err := s.pool.release(ctx, w)
	if err != nil {
		return op, s.cfg.RetryInterval, err
	}
	log.Info("account released", "marked", marked)
	// A new runtime of the instance needs a new search for an account.
	return op, 0, op.SaveDetails(map[string]any{"targetSecret": nil, "claimedAt": nil, "tenant": nil})
}
