package api

import (
	"context"
	"errors"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Update refuses every change: the catalog offers none (plan_updateable is false).
func (b *Broker) Update(ctx context.Context, req *osb.UpdateRequest) (osb.UpdateResult, error) {
	if err := b.exists(ctx, req.InstanceID); err != nil {
		return nil, err
	}
	if req.PlanID != "" && !req.Service.IsPlanUpdateable(req.Plan) {
		if i, err := b.deps.Store.Instance(ctx, req.InstanceID); err == nil && i.Plan.ID != req.PlanID {
			return nil, osb.PlanNotUpdateable()
		}
	}
	return nil, osb.Unprocessable("service instances cannot be updated: deprovision and provision again")
}

func (b *Broker) exists(ctx context.Context, instanceID string) error {
	_, err := b.deps.Store.Instance(ctx, instanceID)
	if errors.Is(err, store.ErrNotFound) {
		return osb.NotFound("there is no such service instance")
	}
	if err != nil {
		return answer(err)
	}
	return nil
}

// errNotBindable is the answer to every request for a binding: the catalog says bindable false.
func errNotBindable() error { return osb.BadRequest("this service is not bindable") }

// Bind refuses.
func (*Broker) Bind(context.Context, *osb.BindRequest) (osb.BindResult, error) {
	return nil, errNotBindable()
}

// GetBinding refuses.
func (*Broker) GetBinding(context.Context, *osb.GetBindingRequest) (*osb.Binding, error) {
	return nil, errNotBindable()
}

// Unbind refuses.
func (*Broker) Unbind(context.Context, *osb.UnbindRequest) (osb.UnbindResult, error) {
	return nil, errNotBindable()
}

// LastBindingOperation refuses.
func (*Broker) LastBindingOperation(context.Context, *osb.LastBindingOperationRequest) (*osb.LastOperation, error) {
	return nil, errNotBindable()
}
