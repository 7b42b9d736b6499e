package reconciler

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// applyClusterConfiguration sends the target version of Kyma to the Reconciler.
type applyClusterConfiguration struct{ *shared }

// Name implements worker.Step.
func (applyClusterConfiguration) Name() string { return "Apply_Cluster_Configuration" }

// Describe implements worker.Described.
func (applyClusterConfiguration) Describe() worker.Description {
	return describeApply("Sends the target version of Kyma to the Reconciler; in a dry run it only reports the request.")
}

// Run implements worker.Step.
func (s applyClusterConfiguration) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	return s.configure(ctx, op, log)
}
