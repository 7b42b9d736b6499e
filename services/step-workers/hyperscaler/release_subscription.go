package hyperscaler

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// releaseSubscription marks the tenant's account for cleaning after its last cluster is removed.
type releaseSubscription struct {
	cfg  Config
	pool *pool
}

// Name implements worker.Step.
func (releaseSubscription) Name() string { return "Release_Subscription" }

// Describe implements worker.Described.
func (releaseSubscription) Describe() worker.Description {
	return worker.Description{
		Summary: "Marks the accounts of the tenant for cleaning that are not used by a cluster or an order in progress.",
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
		// An incomplete instance never claimed an account, so its deprovisioning must not fail here.
		return worker.Skip(op, "there is no account to release: "+err.Error())
	}
	marked, err := s.pool.release(ctx, w)
	if err != nil {
		return outcome.Of(op, component, s.cfg.RetryInterval, err)
	}
	log.Info("account released", "marked", marked)
	// A new runtime of the instance needs a new search for an account.
	return op, 0, op.SaveDetails(map[string]any{"targetSecret": nil, "claimedAt": nil, "tenant": nil})
}
