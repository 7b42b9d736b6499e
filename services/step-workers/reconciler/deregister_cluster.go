package reconciler

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// deregisterCluster starts the deregistration of the runtime.
type deregisterCluster struct{ *shared }

// Name implements worker.Step.
func (deregisterCluster) Name() string { return "Deregister_Cluster" }

// Describe implements worker.Described.
func (deregisterCluster) Describe() worker.Description {
	return worker.Description{
		Summary: "Starts the deregistration of the runtime.",
		Calls:   []worker.Call{{System: system, Operation: "DELETE /clusters/{runtimeID}"}},
		Details: savedMembers(),
	}
}

// Run implements worker.Step.
func (s deregisterCluster) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(system, err))
	}
	switch {
	case !d.DeregisteredAt.IsZero():
		return op, 0, nil
	case d.RuntimeID == "":
		return worker.Skip(op, "the cluster was never registered with the reconciler")
	}
	gone, err := s.deregister(ctx, op, d)
	switch {
	case err != nil:
		return outcome.Of(op, system, s.cfg.RetryInterval, err)
	case gone:
		return worker.Skip(op, "the reconciler has no such cluster")
	}
	log.Info("cluster deregistration started", "runtime_id", d.RuntimeID)
	return op, 0, nil
}
