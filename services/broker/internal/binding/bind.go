package binding

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/services/broker/internal/instance"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Order is a request for a binding.
type Order struct {
	InstanceID, BindingID string
	// ServiceID and PlanID are empty for a rotation that omits them.
	ServiceID, PlanID string
	// Expiration is the requested lifetime; Given reports whether the order contains it.
	Expiration time.Duration
	Given      bool
	// Predecessor is the binding that the new one replaces. It is empty unless the order is a rotation.
	Predecessor string
}

// Bind creates a binding, or returns an existing one; existed reports which. Errors for the platform are *osb.Error, others are
// those of the store. After any error the same order can be repeated.
func (s *Service) Bind(ctx context.Context, o Order) (made *Made, existed bool, err error) {
	var b *store.Binding
	err = s.deps.Store.InTx(ctx, func(ctx context.Context, tx *store.Tx) error {
		var err error
		b, existed, err = s.reserve(ctx, tx, o)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	if !existed {
		if err := s.make(ctx, b); err != nil {
			return nil, false, err
		}
	}
	made, err = s.open(b)
	return made, existed, err
}

// reserve inserts and claims the row of a new binding, or returns the existing binding.
func (s *Service) reserve(ctx context.Context, tx *store.Tx, o Order) (b *store.Binding, existed bool, err error) {
	now := s.deps.Now()
	i, err := tx.Lock(ctx, o.InstanceID)
	if errors.Is(err, store.ErrNotFound) || err == nil && !i.DeletedAt.IsZero() {
		return nil, false, osb.NotFound("there is no such service instance")
	}
	if err != nil {
		return nil, false, err
	}
	if err := s.bindable(ctx, tx, i, o); err != nil {
		return nil, false, err
	}
	b, err = tx.Binding(ctx, o.InstanceID, o.BindingID)
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return nil, false, err
	default:
		if existed, err = existing(b, o, now); existed || err != nil {
			return b, existed, err
		}
	}
	if err := s.deps.Rejections.Check("", i); err != nil {
		return nil, false, err
	}
	if err := s.predecessor(ctx, tx, &o, now); err != nil {
		return nil, false, err
	}
	others, err := tx.OtherBindings(ctx, i.ID, o.BindingID, now)
	if err != nil {
		return nil, false, err
	}
	if others >= s.cfg.Limit {
		return nil, false, osb.Unprocessable("the instance has %d bindings that have not expired, and may have no more: "+
			"unbind one, or wait until one expires", others)
	}
	b = &store.Binding{
		InstanceID: i.ID, ID: o.BindingID, Account: i.Context.GlobalAccountID, Expiration: o.Expiration,
		Predecessor: o.Predecessor, CreatedAt: now, ExpiresAt: now.Add(o.Expiration),
	}
	if b.RuntimeID, err = tx.RuntimeID(ctx, i.ID); err != nil {
		return nil, false, err
	}
	s.claim(b, uuid.NewString(), now)
	return b, false, tx.ReserveBinding(ctx, b)
}

// bindable rejects an order for an instance without a runtime or with a plan that is not bindable.
func (s *Service) bindable(ctx context.Context, tx *store.Tx, i *instance.Instance, o Order) error {
	newest, err := tx.Operation(ctx, i.OperationID)
	if err != nil {
		return err
	}
	if o.ServiceID != "" && (i.ServiceID != o.ServiceID || i.Plan.ID != o.PlanID) {
		return osb.BadRequest("service_id and plan_id must be those of the service instance")
	}
	if !s.deps.Catalog.IsBindable(i.Plan.ID) {
		return osb.BadRequest("plan %q is not bindable", i.Plan.Name)
	}
	if o.Predecessor != "" && !s.deps.Catalog.IsBindingRotatable(i.Plan.ID) {
		return osb.BadRequest("bindings of plan %q cannot be rotated: leave out predecessor_binding_id", i.Plan.Name)
	}
	if err := busy(newest); err != nil {
		return err
	}
	switch {
	case newest.Type == event.Deprovision && newest.State == event.Succeeded && !newest.Suspension:
		return osb.NotFound("the service instance is deleted")
	case newest.Type == event.Deprovision && newest.Suspension:
		return osb.BadRequest("the service instance is suspended: it has no runtime")
	case newest.Type == event.Deprovision, newest.Type == event.Provision && newest.State != event.Succeeded:
		return osb.BadRequest("the service instance is not provisioned")
	}
	return nil
}

// busy rejects an order while an operation creates, removes or changes the runtime (docs/contracts/osb.md#bindings, B21). A
// runtime stays usable during an upgrade.
func busy(newest *instance.Operation) error {
	switch newest.Type {
	case event.Provision, event.Update, event.Deprovision:
		if !newest.State.Final() {
			return osb.ConcurrencyError()
		}
	}
	return nil
}

// existing checks an order for a binding that has a row. It returns false if the order may take over the row.
func existing(b *store.Binding, o Order, now time.Time) (bool, error) {
	same := b.Predecessor == o.Predecessor && (b.Expiration == o.Expiration || o.Predecessor != "" && !o.Given)
	switch {
	case b.Usable(now) && same:
		return true, nil
	case b.Usable(now):
		return false, osb.Conflict("a binding with this id exists, with other parameters")
	case !b.MadeAt.IsZero() && !now.Before(b.ExpiresAt):
		return false, osb.BadRequest("a binding with this id has expired and is not removed yet: use another id")
	case !b.MadeAt.IsZero():
		return false, errBusy("the binding with this id is being removed: try again later, or use another id")
	case b.Claimed(now) && !same && b.RevokedAt.IsZero():
		return false, osb.Conflict("a binding with this id is being made, with other parameters")
	case b.Claimed(now):
		return false, errBusy("another request for the binding with this id is in progress: try again when it has ended")
	}
	return false, nil
}

// errBusy is osb.ConcurrencyError about a binding.
func errBusy(description string) *osb.Error {
	e := osb.ConcurrencyError()
	e.Description = description
	return e
}

// predecessor sets the parameters of a rotation to those of the binding that it replaces.
func (s *Service) predecessor(ctx context.Context, tx *store.Tx, o *Order, now time.Time) error {
	if o.Predecessor == "" {
		return nil
	}
	p, err := tx.Binding(ctx, o.InstanceID, o.Predecessor)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if err != nil || !p.Usable(now) {
		return osb.BadRequest("predecessor_binding_id must name a binding of this service instance that has not expired")
	}
	if o.Given && o.Expiration != p.Expiration {
		return osb.BadRequest("parameters must be left out, or be those of the binding that predecessor_binding_id names")
	}
	o.Expiration = p.Expiration
	return nil
}

// make asks the worker runtime to create the access of a reserved binding, and stores it.
func (s *Service) make(ctx context.Context, b *store.Binding) error {
	a, err := s.ask(ctx, b)
	if err == nil {
		b.MadeAt, b.ExpiresAt = s.deps.Now(), a.ExpiresAt
		err = s.seal(b, a.Kubeconfig)
	}
	if err != nil {
		s.release(ctx, b, s.deps.Now().Add(s.cfg.Grace))
		if errors.Is(err, store.ErrUnavailable) {
			return err
		}
		return osb.Unavailable(err)
	}
	// The access exists now, so store it even if the platform has disconnected.
	wanted, err := s.deps.Store.FinishBinding(context.WithoutCancel(ctx), b)
	if err != nil {
		return err
	}
	if !wanted {
		// The instance is being deprovisioned.
		s.release(ctx, b, s.deps.Now())
		return osb.ConcurrencyError()
	}
	return nil
}

func (s *Service) ask(ctx context.Context, b *store.Binding) (event.BindAnswer, error) {
	var a event.BindAnswer
	at, err := s.access(ctx, b)
	if err != nil {
		return a, err
	}
	err = s.deps.Bus.AskWithTimeout(ctx, s.cfg.Timeout, event.AskBind, event.BindRequest{
		Runtime: at, BindingID: b.ID, ExpirationSeconds: int64(b.Expiration / time.Second),
	}, &a)
	if err == nil && (a.Kubeconfig == "" || !a.ExpiresAt.After(s.deps.Now())) {
		err = errors.New("the answer of the worker runtime contains no valid kubeconfig")
	}
	return a, err
}
