package binding

import (
	"context"
	"errors"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Get returns a binding. An expired or unfinished binding does not exist.
func (s *Service) Get(ctx context.Context, instanceID, id string) (*Made, error) {
	b, err := s.deps.Store.Binding(ctx, instanceID, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && !b.Usable(s.deps.Now()) {
		return nil, osb.NotFound("there is no such service binding")
	}
	if err != nil {
		return nil, err
	}
	return s.open(b)
}

// LastOperation returns the state of a binding. All operations on bindings are synchronous, but a platform may poll nevertheless:
// the answer is success, 410 for a removed binding, or 404 for an unknown one.
func (s *Service) LastOperation(ctx context.Context, instanceID, id string) (*osb.LastOperation, error) {
	b, err := s.deps.Store.Binding(ctx, instanceID, id)
	switch {
	case err == nil && b.Usable(s.deps.Now()):
		return &osb.LastOperation{State: osb.StateSucceeded}, nil
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return nil, err
	}
	removed, err := s.deps.Store.BindingRemoved(ctx, instanceID, id)
	switch {
	case err != nil:
		return nil, err
	case removed, b != nil && !b.MadeAt.IsZero():
		return nil, osb.Gone()
	}
	return nil, osb.NotFound("there is no such service binding")
}
