package kyma

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// provisionInitialization selects the version of Kyma for a new runtime.
type provisionInitialization struct{ decider }

// Name implements worker.Step.
func (provisionInitialization) Name() string { return "Provision_Initialization" }

// Describe implements worker.Described.
func (provisionInitialization) Describe() worker.Description {
	return describe("Selects the version of Kyma and reads its components. The version is that of the order, otherwise that of the account, otherwise the configured one.")
}

// Run implements worker.Step. Each repetition of the stage selects the version again, as do the steps that use it.
func (s provisionInitialization) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	decided, err := s.forOrder(ctx, op)
	return s.save(ctx, op, log, decided, err)
}
