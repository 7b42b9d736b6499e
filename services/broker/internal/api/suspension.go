package api

import (
	"context"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/services/broker/internal/instance"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// suspend removes the runtime of an instance and keeps the instance (docs/contracts/broker.md#suspension-and-expiry). It returns
// the id of the suspending operation, or of the one that already runs. It returns no id if the instance is already suspended.
// After a failed suspension it starts another one.
func (b *Broker) suspend(
	ctx context.Context, tx *store.Tx, call osb.Call, i *instance.Instance, newest *instance.Operation, operationID string,
) (string, error) {
	return b.suspendFor(ctx, tx, call, i, newest, operationID, event.PurposeSuspension)
}

// suspendFor is suspend for a suspension or an expiry.
func (b *Broker) suspendFor(
	ctx context.Context, tx *store.Tx, call osb.Call, i *instance.Instance, newest *instance.Operation, operationID string, purpose event.Purpose,
) (string, error) {
	switch {
	case newest.Type == event.Deprovision && !newest.State.Final():
		return newest.ID, nil
	case newest.Type == event.Deprovision && newest.State == event.Succeeded:
		return "", nil
	case newest.State.Final():
	case newest.Suspension:
		// Like any deprovisioning, it cancels a running provisioning.
		if err := tx.Supersede(ctx, newest.ID, operationID); err != nil {
			return "", err
		}
	default:
		return "", osb.ConcurrencyError()
	}
	return operationID, b.recordSuspension(ctx, tx, call, i, event.Deprovision, operationID, purpose)
}

// resume recreates the runtime of a suspended instance under its old name. It returns the id of the operation, or of the one
// that already runs. It returns no id if the instance has a runtime or has expired. If a suspension runs, the new operation
// waits for its end; resume also works after a failed suspension.
func (b *Broker) resume(
	ctx context.Context, tx *store.Tx, call osb.Call, i *instance.Instance, newest *instance.Operation, operationID string,
) (string, error) {
	switch {
	case !i.ExpiredAt.IsZero(), !newest.Suspension, newest.Type == event.Provision && newest.State == event.Succeeded:
		return "", nil
	case newest.Type == event.Provision && !newest.State.Final():
		return newest.ID, nil
	}
	if err := b.deps.Rejections.Check(event.Provision, i); err != nil {
		return "", err
	}
	return operationID, b.recordSuspension(ctx, tx, call, i, event.Provision, operationID, event.PurposeUnsuspension)
}

func (b *Broker) recordSuspension(
	ctx context.Context, tx *store.Tx, call osb.Call, i *instance.Instance, t event.OperationType, operationID string, purpose event.Purpose,
) error {
	list := tx.CredentialNames
	if t == event.Deprovision {
		list = tx.RuntimeCredentialNames
	}
	names, err := list(ctx, i.ID)
	if err != nil {
		return err
	}
	operation := i.Event(operationID, t, names)
	operation.Temporary, operation.Purpose = t == event.Deprovision, purpose
	return tx.InsertOperation(ctx, store.Request{
		Operation: operation, At: b.deps.Now(), Extensions: extensions(ctx, call, operationID), Suspension: true,
	})
}

// provisionings reports whether a provisioning of an instance has succeeded.
type provisionings interface {
	Provisioned(ctx context.Context, instanceID string) (bool, error)
}

// neverProvisioned reports whether the provisioning of an instance failed, from its newest operation. An expiry may have suspended the
// instance since.
func neverProvisioned(ctx context.Context, p provisionings, newest *instance.Operation) (bool, error) {
	if !newest.Suspension {
		return newest.Type == event.Provision && newest.State.Final() && newest.State != event.Succeeded, nil
	}
	ok, err := p.Provisioned(ctx, newest.InstanceID)
	return !ok, err
}

// status describes, for people, the suspension of an instance. It is empty if the instance was never suspended.
func status(newest *instance.Operation) string {
	if !newest.Suspension {
		return ""
	}
	ended, succeeded := newest.State.Final(), newest.State == event.Succeeded
	if newest.Type == event.Deprovision {
		switch {
		case succeeded:
			return "suspended"
		case ended:
			return "suspension failed"
		}
		return "being suspended"
	}
	switch {
	case succeeded:
		return ""
	case ended:
		return "unsuspension failed"
	}
	return "being unsuspended"
}
