package reconciler

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// createClusterConfiguration sends the configuration of the new runtime to the Reconciler.
type createClusterConfiguration struct{ *shared }

// Name implements worker.Step.
func (createClusterConfiguration) Name() string { return "Create_Cluster_Configuration" }

// Describe implements worker.Described.
func (createClusterConfiguration) Describe() worker.Description {
	d := describeApply("Registers the new runtime with the Reconciler, with the overrides of all steps of the stage.")
	d.Calls = append(d.Calls, worker.Call{System: system, Operation: "DELETE /clusters/{runtimeID}"})
	return d
}

func describeApply(summary string) worker.Description {
	return worker.Description{
		Summary: summary,
		Calls:   []worker.Call{{System: system, Operation: "POST /clusters"}},
		Details: savedMembers(),
	}
}

// Run implements worker.Step.
func (s createClusterConfiguration) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	return s.configure(ctx, op, log)
}
