package binding

import (
	"context"
	"sync"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// batch is the number of bindings that are removed concurrently.
const batch = 8

// Run removes expired, revoked and unfinished bindings until ctx ends. It retries failed removals.
func (s *Service) Run(ctx context.Context) error {
	return service.Every(ctx, s.cfg.Every, s.deps.Log, "clean-up of bindings", s.sweep)
}

// sweep removes the bindings that are due when it begins. Removals that fail are due again in a later one, so that they do not delay others.
func (s *Service) sweep(ctx context.Context) error {
	begun := s.deps.Now()
	if err := s.deps.Store.PurgeRemovedBindings(ctx, begun.Add(-s.cfg.Keep)); err != nil {
		return err
	}
	for ctx.Err() == nil {
		now := s.deps.Now()
		var claimed store.Binding
		s.claim(&claimed, uuid.NewString(), now)
		due, err := s.deps.Store.ClaimDueBindings(ctx, claimed.Claim, begun, claimed.ClaimedUntil, claimed.DueAt, batch)
		if err != nil {
			return err
		}
		var removals sync.WaitGroup
		for _, b := range due {
			removals.Go(func() { s.cleanUp(ctx, b) })
		}
		removals.Wait()
		if len(due) < batch {
			break
		}
	}
	return nil
}

func (s *Service) cleanUp(ctx context.Context, b *store.Binding) {
	log := s.deps.Log.With("instance_id", b.InstanceID, "binding_id", b.ID)
	if err := s.remove(ctx, b); err != nil {
		if ctx.Err() == nil {
			log.Warn("access of a binding not removed, trying again", "err", err)
		}
		s.release(ctx, b, s.deps.Now().Add(s.cfg.Every))
		return
	}
	if _, err := s.deps.Store.RemoveBinding(ctx, b, s.deps.Now()); err != nil {
		log.Warn("binding not removed, trying again", "err", err)
		return
	}
	log.Info("binding removed", "finished", !b.MadeAt.IsZero(), "expires_at", b.ExpiresAt)
}
