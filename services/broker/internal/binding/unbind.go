package binding

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Unbind removes the access of a binding, then its row. It returns osb.Gone for a binding that does not exist or was never
// finished. It returns osb.Unavailable if the access cannot be removed now; the clean-up then removes it later.
func (s *Service) Unbind(ctx context.Context, instanceID, id string) error {
	var b *store.Binding
	err := s.deps.Store.InTx(ctx, func(ctx context.Context, tx *store.Tx) error {
		var err error
		b, err = s.revoke(ctx, tx, instanceID, id)
		return err
	})
	if err != nil {
		return err
	}
	if err := s.remove(ctx, b); err != nil {
		s.release(ctx, b, s.deps.Now().Add(s.cfg.Every))
		return osb.Unavailable(err)
	}
	removed, err := s.deps.Store.RemoveBinding(context.WithoutCancel(ctx), b, s.deps.Now())
	if err != nil {
		return err
	}
	if !removed || b.MadeAt.IsZero() {
		return osb.Gone()
	}
	return nil
}

// revoke claims a binding in order to remove it.
func (s *Service) revoke(ctx context.Context, tx *store.Tx, instanceID, id string) (*store.Binding, error) {
	now := s.deps.Now()
	i, err := tx.Lock(ctx, instanceID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, osb.Gone()
	}
	if err != nil {
		return nil, err
	}
	newest, err := tx.Operation(ctx, i.OperationID)
	if err != nil {
		return nil, err
	}
	b, err := tx.Binding(ctx, instanceID, id)
	switch {
	// The clean-up removes bindings that a deprovisioning revoked.
	case errors.Is(err, store.ErrNotFound), err == nil && newest.Type == event.Deprovision:
		return nil, osb.Gone()
	case err != nil:
		return nil, err
	}
	if err := busy(newest); err != nil {
		return nil, err
	}
	if b.Claimed(now) {
		return nil, errBusy("another request for this binding is in progress: try again when it has ended")
	}
	s.claim(b, uuid.NewString(), now)
	return b, tx.RevokeBinding(ctx, b, now)
}

// remove asks the worker runtime to remove the access of a claimed binding.
func (s *Service) remove(ctx context.Context, b *store.Binding) error {
	at, err := s.access(ctx, b)
	if errors.Is(err, errNoRuntime) {
		// The binding never had a runtime.
		return nil
	}
	if err != nil {
		return err
	}
	return s.deps.Bus.AskWithTimeout(ctx, s.cfg.Timeout, event.AskUnbind, event.UnbindRequest{Runtime: at, BindingID: b.ID}, &event.UnbindAnswer{})
}
