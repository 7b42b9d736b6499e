package reconciler

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

func describeApply(summary string) worker.Description {
	return worker.Description{
		Summary: summary,
		Calls:   []worker.Call{{System: system, Operation: "POST /clusters"}},
		Details: savedMembers(),
	}
}

// createClusterConfiguration sends the configuration of the new runtime to the Reconciler.
func (s *shared) createClusterConfiguration(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	return s.configure(ctx, op, log)
}
