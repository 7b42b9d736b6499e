package api

import (
	"context"
	"errors"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/services/broker/internal/catalog"
	"github.com/kyma-project/keb/services/broker/internal/instance"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// GetInstance returns a provisioned instance. It reads the same row as LastOperation, so their answers never contradict each
// other (F02).
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
	failed, err := neverProvisioned(ctx, b.deps.Store, newest)
	if err != nil {
		return nil, answer(err)
	}
	switch {
	case failed:
		return nil, osb.NotFound("the service instance is not provisioned")
	case newest.Suspension:
		// The instance exists, with or without a runtime.
	case newest.Type == event.Deprovision:
		return nil, osb.NotFound("the service instance is deleted")
	case newest.Type == event.Provision && newest.State != event.Succeeded:
		return nil, osb.NotFound("the service instance is not provisioned")
	case newest.Type == event.Update && !newest.State.Final():
		return nil, osb.ConcurrencyError()
	}
	out := &osb.Instance{
		ServiceID: i.ServiceID, PlanID: i.Plan.ID, DashboardURL: i.DashboardURL, Parameters: i.Sent, Metadata: b.state(i, newest),
		MaintenanceInfo: b.maintenance(req.Region, i),
	}
	return out, nil
}

// maintenance returns the maintenance_info of an instance. It is that of the plan if the versions are equal, or if no version
// of the instance is stored.
func (b *Broker) maintenance(region string, i *instance.Instance) *osb.MaintenanceInfo {
	var plan *osb.Plan
	if service := b.deps.Catalog.Document(region).Service(i.ServiceID); service != nil {
		plan = service.Plan(i.Plan.ID)
	}
	known := plan != nil && plan.MaintenanceInfo != nil
	switch {
	case known && (i.MaintenanceVersion == "" || i.MaintenanceVersion == plan.MaintenanceInfo.Version):
		return plan.MaintenanceInfo
	case i.MaintenanceVersion == "":
		return nil
	}
	return &osb.MaintenanceInfo{Version: i.MaintenanceVersion}
}

// state returns the metadata of an instance, including the labels that change without a request
// (docs/contracts/broker.md#suspension-and-expiry).
func (b *Broker) state(i *instance.Instance, newest *instance.Operation) *osb.Metadata {
	m := b.metadata(i)
	if s := status(newest); s != "" {
		m.Labels["Status"] = s
	}
	if i.Plan.Name == catalog.Trial {
		m.Labels["Trial expiration details"] = b.expiration(i)
		if b.cfg.TrialDocumentation != "" {
			m.Labels["Trial documentation"] = b.cfg.TrialDocumentation
		}
	}
	return m
}

// LastOperation returns the state of an operation. The broker keeps the operations of a deleted instance for a while; after
// that it returns 410.
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
	l := o.LastOperation(b.outlook(ctx, o))
	if l.State == osb.StateInProgress {
		l.RetryAfter = b.cfg.RetryAfter
	}
	return &l, nil
}

// outlook returns what is known about the time of an operation.
func (b *Broker) outlook(ctx context.Context, o *instance.Operation) instance.Outlook {
	look := instance.Outlook{Elapsed: b.deps.Now().Sub(o.CreatedAt), TimedOut: b.timedOut(o)}
	usual := b.usual.Load()
	if o.State.Final() || usual == nil || len(*usual) == 0 {
		return look
	}
	if i, err := b.deps.Store.Instance(ctx, o.InstanceID); err == nil { // otherwise the answer has no usual duration
		look.Usual = (*usual)[instance.Kind{Type: o.Type, Plan: i.Plan.Name, Suspension: o.Suspension}]
	}
	return look
}

func (b *Broker) operation(ctx context.Context, req *osb.LastOperationRequest) (*instance.Operation, error) {
	if req.Operation == "" {
		return b.deps.Store.NewestOperation(ctx, req.InstanceID)
	}
	return b.deps.Store.Operation(ctx, req.Operation)
}

func (b *Broker) noOperation(ctx context.Context, req *osb.LastOperationRequest) error {
	exists, buried, err := b.deps.Store.Known(ctx, req.InstanceID)
	switch {
	case err != nil:
		return answer(err)
	case buried && !exists:
		return osb.Gone()
	case exists:
		return osb.NotFound("there is no such operation")
	}
	return osb.NotFound("there is no such service instance")
}
