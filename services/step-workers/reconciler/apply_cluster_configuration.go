package reconciler

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// applyClusterConfiguration tells the Reconciler which version of Kyma the runtime is upgraded to.
type applyClusterConfiguration struct{ *shared }

// Name implements worker.Step.
func (applyClusterConfiguration) Name() string { return "Apply_Cluster_Configuration" }

// Describe implements worker.Described.
func (applyClusterConfiguration) Describe() worker.Description {
	return describeApply("Tells the Reconciler to which version Kyma is upgraded; in a dry run it only says what it would send.")
}

// Run implements worker.Step.
func (s applyClusterConfiguration) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	return s.configure(ctx, op, log)
}
