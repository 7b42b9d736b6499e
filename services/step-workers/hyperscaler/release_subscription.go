package hyperscaler

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// releaseSubscription marks the tenant's account for cleaning when its last cluster is gone.
type releaseSubscription struct {
	cfg  Config
	pool *pool
}

// Name implements worker.Step.
func (releaseSubscription) Name() string { return "Release_Subscription" }

// Describe implements worker.Described.
func (releaseSubscription) Describe() worker.Description {
	return worker.Description{
		Summary: "Marks the accounts of the tenant for cleaning that no cluster and no order in progress uses any more.",
		Calls: []worker.Call{
			{System: system, Operation: "list secretbindings"},
			{System: system, Operation: "list shoots"},
			{System: system, Operation: "patch secretbindings"},
		},
		Details: []string{"targetSecret", "claimedAt", "tenant"},
	}
}

// Run implements worker.Step.
func (s releaseSubscription) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if op.Plan.Name == "trial" || op.Plan.Name == "own_cluster" {
		return worker.Skip(op, "instances of plan "+op.Plan.Name+" have no account of their own")
	}
	w, err := wanted(op)
	if err != nil {
		// Nothing can have been claimed: an instance that was never complete has no account, and must not stay for that.
		return worker.Skip(op, "there is no account to release: "+err.Error())
	}
	marked, err := s.pool.release(ctx, w)
	if err != nil {
		return outcome.Of(op, component, s.cfg.RetryInterval, err)
	}
	log.Info("account released", "marked", marked)
	// An instance that gets a runtime again looks for an account again.
	return op, 0, op.SaveDetails(map[string]any{"targetSecret": nil, "claimedAt": nil, "tenant": nil})
}
