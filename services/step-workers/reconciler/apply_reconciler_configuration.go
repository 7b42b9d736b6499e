package reconciler

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// applyReconcilerConfiguration tells the Reconciler about the new credentials of an update.
type applyReconcilerConfiguration struct{ *shared }

// Name implements worker.Step.
func (applyReconcilerConfiguration) Name() string { return "Apply_Reconciler_Configuration" }

// Describe implements worker.Described.
func (applyReconcilerConfiguration) Describe() worker.Description {
	return describeApply("Tells the Reconciler about the new credentials of the Service Manager.")
}

// Run implements worker.Step.
func (s applyReconcilerConfiguration) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	return s.configure(ctx, op, log)
}
