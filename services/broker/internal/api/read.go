package api

import (
	"context"
	"errors"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/services/broker/internal/instance"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// GetInstance reads an instance that is provisioned. It decides by the same row as LastOperation, so the two never
// contradict each other (F02).
func (b *Broker) GetInstance(ctx context.Context, req *osb.GetInstanceRequest) (*osb.Instance, error) {
	i, err := b.deps.Store.Instance(ctx, req.InstanceID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, osb.NotFound("there is no such service instance")
	}
	if err != nil {
		return nil, answer(err)
	}
	newest, err := b.deps.Store.Operation(ctx, i.OperationID)
	if err != nil {
		return nil, answer(err)
	}
	switch {
	case newest.Type == event.Deprovision:
		return nil, osb.NotFound("the service instance is deleted")
	case newest.Type == event.Provision && newest.State != event.Succeeded:
		return nil, osb.NotFound("the service instance is not provisioned")
	case newest.Type == event.Update && !newest.State.Final():
		return nil, osb.ConcurrencyError()
	}
	out := &osb.Instance{
		ServiceID: i.ServiceID, PlanID: i.Plan.ID, DashboardURL: i.DashboardURL, Parameters: i.Sent, Metadata: metadata(i),
	}
	if service := b.deps.Catalog.Document(req.Region).Service(i.ServiceID); service != nil {
		if plan := service.Plan(i.Plan.ID); plan != nil {
			out.MaintenanceInfo = plan.MaintenanceInfo
		}
	}
	return out, nil
}

// LastOperation tells where an operation stands. Operations of an instance that is gone are known for a while; after
// that the answer is 410.
func (b *Broker) LastOperation(ctx context.Context, req *osb.LastOperationRequest) (*osb.LastOperation, error) {
	o, err := b.operation(ctx, req)
	if errors.Is(err, store.ErrNotFound) {
		return nil, b.noOperation(ctx, req)
	}
	if err != nil {
		return nil, answer(err)
	}
	if o.InstanceID != req.InstanceID {
		return nil, osb.BadRequest("the operation belongs to another service instance")
	}
	l := o.LastOperation(b.timedOut(o))
	if l.State == osb.StateInProgress {
		l.RetryAfter = b.cfg.RetryAfter
	}
	return &l, nil
}

func (b *Broker) operation(ctx context.Context, req *osb.LastOperationRequest) (*instance.Operation, error) {
	if req.Operation == "" {
		return b.deps.Store.NewestOperation(ctx, req.InstanceID)
	}
	return b.deps.Store.Operation(ctx, req.Operation)
}

func (b *Broker) noOperation(ctx context.Context, req *osb.LastOperationRequest) error {
	there, buried, err := b.deps.Store.Known(ctx, req.InstanceID)
	switch {
	case err != nil:
		return answer(err)
	case buried && !there:
		return osb.Gone()
	case there:
		return osb.NotFound("there is no such operation")
	}
	return osb.NotFound("there is no such service instance")
}
