package kyma

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// provisionInitialization decides which version of Kyma a new runtime gets.
type provisionInitialization struct{ decider }

// Name implements worker.Step.
func (provisionInitialization) Name() string { return "Provision_Initialization" }

// Describe implements worker.Described.
func (provisionInitialization) Describe() worker.Description {
	return describe("Decides the version of Kyma, the one that was ordered, else that of the account, else the configured one, and reads its components.")
}

// Run implements worker.Step. Each repetition of the stage decides anew, as do the steps that use the version.
func (s provisionInitialization) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	decided, err := s.forOrder(ctx, op)
	return s.save(ctx, op, log, decided, err)
}
