package api

import (
	"context"
	"errors"
	"strings"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/services/broker/internal/instance"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Deprovision accepts a deletion once it is committed, even while another operation runs or waits. The orchestrator cancels
// that provisioning, update or upgrade.
func (b *Broker) Deprovision(ctx context.Context, req *osb.DeprovisionRequest) (osb.DeprovisionResult, error) {
	var (
		operationID = newOperationID()
		result      osb.Accepted
	)
	err := b.deps.Store.InTx(ctx, func(ctx context.Context, tx *store.Tx) error {
		var err error
		result, err = b.remove(ctx, tx, req, operationID)
		return err
	})
	if err != nil {
		return nil, answer(err)
	}
	if result.Operation == operationID {
		b.deps.Notify(req.InstanceID)
		b.audit(req.Call, "deprovision", req.InstanceID, operationID)
	}
	return result, nil
}

func (b *Broker) remove(
	ctx context.Context, tx *store.Tx, req *osb.DeprovisionRequest, operationID string,
) (osb.Accepted, error) {
	i, err := tx.Lock(ctx, req.InstanceID)
	if errors.Is(err, store.ErrNotFound) {
		return removed(ctx, tx, req)
	}
	if err != nil {
		return osb.Accepted{}, err
	}
	newest, err := tx.Operation(ctx, i.OperationID)
	if err != nil {
		return osb.Accepted{}, err
	}
	removing := newest.Type == event.Deprovision && !newest.Suspension
	if removing && newest.State == event.Succeeded {
		return osb.Accepted{}, osb.Gone()
	}
	// Operators handle the objects that a deprovisioning left behind, see Retrigger.
	if !i.DeletedAt.IsZero() && newest.CreatedAt.After(i.DeletedAt) {
		return osb.Accepted{}, osb.Gone()
	}
	if !req.AcceptsIncomplete {
		return osb.Accepted{}, osb.AsyncRequired()
	}
	if removing && !newest.State.Final() {
		return osb.Accepted{Operation: newest.ID}, nil
	}
	if i.ServiceID != req.ServiceID || i.Plan.ID != req.PlanID {
		b.deps.Log.Warn("plan of the deprovisioning request differs from the plan of the instance", "instance_id", i.ID,
			"plan_id", req.PlanID, "instance_plan_id", i.Plan.ID)
	}
	return b.recordRemoval(ctx, tx, req, i, newest, operationID)
}

// removed answers for an instance without a row. Its deprovisioning may not have ended yet.
func removed(ctx context.Context, tx *store.Tx, req *osb.DeprovisionRequest) (osb.Accepted, error) {
	newest, err := tx.NewestOperation(ctx, req.InstanceID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return osb.Accepted{}, osb.Gone()
	case err != nil:
		return osb.Accepted{}, err
	case newest.State.Final():
		return osb.Accepted{}, osb.Gone()
	case !req.AcceptsIncomplete:
		return osb.Accepted{}, osb.AsyncRequired()
	}
	return osb.Accepted{Operation: newest.ID}, nil
}

func (b *Broker) recordRemoval(
	ctx context.Context, tx *store.Tx, req *osb.DeprovisionRequest, i *instance.Instance, newest *instance.Operation,
	operationID string,
) (osb.Accepted, error) {
	names, err := tx.RuntimeCredentialNames(ctx, i.ID)
	if err != nil {
		return osb.Accepted{}, err
	}
	if newest.Type != event.Deprovision && !newest.State.Final() {
		if err := tx.Supersede(ctx, newest.ID, operationID); err != nil {
			return osb.Accepted{}, err
		}
	}
	operation := i.Event(operationID, event.Deprovision, names)
	operation.UserAgent = userAgent(req.Call)
	err = tx.InsertOperation(ctx, store.Request{
		Operation: operation, At: b.deps.Now(), Extensions: extensions(ctx, req.Call, operationID),
	})
	if err != nil {
		return osb.Accepted{}, err
	}
	return osb.Accepted{Operation: operationID}, nil
}

// maxUserAgent is the stored length of a User-Agent, in bytes.
const maxUserAgent = 256

// userAgent returns the client that requests the deletion. Some steps handle the clean-up of an account differently
// (docs/contracts/broker.md#requests).
func userAgent(call osb.Call) string {
	return strings.ToValidUTF8(call.UserAgent[:min(len(call.UserAgent), maxUserAgent)], "")
}
