package ias

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// deregistration deletes the service providers of the instance.
type deregistration struct {
	cfg Config
	ias *client
}

// Name implements worker.Step.
func (deregistration) Name() string { return "IAS_Deregistration" }

// Describe implements worker.Described.
func (deregistration) Describe() worker.Description {
	return worker.Description{
		Summary: "Deletes the service providers that the instance has in IAS.",
		Calls: []worker.Call{
			{System: component, Operation: "GET /service/company/global"},
			{System: component, Operation: "PUT /service/sps/delete"},
		},
	}
}

// Run implements worker.Step.
func (s deregistration) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	own, err := s.ias.ofInstance(ctx, op.InstanceID)
	if err != nil {
		return outcome.Of(op, component, s.cfg.RetryInterval, fmt.Errorf("list service providers: %w", err))
	}
	if len(own) == 0 {
		return worker.Skip(op, "the instance has no service provider")
	}
	for _, p := range own {
		if err := s.ias.remove(ctx, p.id()); err != nil {
			return outcome.Of(op, component, s.cfg.RetryInterval, fmt.Errorf("delete a service provider: %w", err))
		}
	}
	log.Info("service providers deleted", "count", len(own))
	return op, 0, nil
}
