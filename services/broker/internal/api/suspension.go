package api

import (
	"context"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/services/broker/internal/instance"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// suspend takes the runtime of an instance away and leaves the instance (facts/keb.md 1.8). It returns the operation that does
// so, which is the running one if the instance is being suspended already, and none if it is suspended. One that failed is
// followed by another.
func (b *Broker) suspend(
	ctx context.Context, tx *store.Tx, call osb.Call, i *instance.Instance, newest *instance.Operation, operationID string,
) (string, error) {
	switch {
	case newest.Type == event.Deprovision && !newest.State.Final():
		return newest.ID, nil
	case newest.Type == event.Deprovision && newest.State == event.Succeeded:
		return "", nil
	case newest.State.Final():
	case newest.Suspension:
		// Like any deprovisioning, it ends the provisioning that it comes upon.
		if err := tx.Supersede(ctx, newest.ID, operationID); err != nil {
			return "", err
		}
	default:
		return "", osb.ConcurrencyError()
	}
	return operationID, b.recordSuspension(ctx, tx, call, i, event.Deprovision, operationID)
}

// resume brings the runtime of a suspended instance back under its old name. It returns the operation that does so, which is
// the running one if there is one already, and none if there is nothing to bring back or the instance has expired. It also
// follows on a suspension that runs, when it waits for its end, or that failed.
func (b *Broker) resume(
	ctx context.Context, tx *store.Tx, call osb.Call, i *instance.Instance, newest *instance.Operation, operationID string,
) (string, error) {
	switch {
	case !i.ExpiredAt.IsZero(), !newest.Suspension, newest.Type == event.Provision && newest.State == event.Succeeded:
		return "", nil
	case newest.Type == event.Provision && !newest.State.Final():
		return newest.ID, nil
	}
	return operationID, b.recordSuspension(ctx, tx, call, i, event.Provision, operationID)
}

func (b *Broker) recordSuspension(
	ctx context.Context, tx *store.Tx, call osb.Call, i *instance.Instance, t event.OperationType, operationID string,
) error {
	names, err := tx.CredentialNames(ctx, i.ID)
	if err != nil {
		return err
	}
	operation := i.Event(operationID, t, names)
	operation.Temporary = t == event.Deprovision
	return tx.InsertOperation(ctx, store.Request{
		Operation: operation, At: b.deps.Now(), Extensions: extensions(ctx, call, operationID), Suspension: true,
	})
}

// status is how it stands with an instance that is or was suspended, for people; empty for any other.
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
