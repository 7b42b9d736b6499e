package reconciler

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// checkReconcilerState waits until the runtime has the configuration of an update.
type checkReconcilerState struct{ *shared }

// Name implements worker.Step.
func (checkReconcilerState) Name() string { return "CheckReconcilerState" }

// Describe implements worker.Described.
func (checkReconcilerState) Describe() worker.Description {
	return worker.Description{
		Summary: "Waits until the runtime has the configuration of the update.",
		Calls:   []worker.Call{{System: system, Operation: "GET /clusters/{runtimeID}/configs/{version}/status"}},
	}
}

// Run implements worker.Step.
func (s checkReconcilerState) Run(ctx context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(system, err))
	}
	return s.check(ctx, op, d, "the new credentials are being installed")
}
