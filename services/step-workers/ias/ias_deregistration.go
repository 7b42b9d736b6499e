package ias

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// deregistration deletes the service providers of the instance.
func (s *shared) deregistration(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	own, err := s.ias.ofInstance(ctx, op.InstanceID)
	if err != nil {
		return op, s.cfg.RetryInterval, fmt.Errorf("list service providers: %w", err)
	}
	if len(own) == 0 {
		return worker.Skip(op, "the instance has no service provider")
	}
	for _, p := range own {
		existed, err := s.ias.remove(ctx, p.id())
		if err != nil {
			return op, s.cfg.RetryInterval, fmt.Errorf("delete a service provider: %w", err)
		}
		if existed {
			op.NoteRemoved("service provider " + p.id())
		}
	}
	log.Info("service providers deleted", "count", len(own))
	return op, 0, nil
}
