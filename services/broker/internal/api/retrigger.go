package api

import (
	"context"
	"errors"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Retriggered is the result of Retrigger.
type Retriggered struct {
	// Operation is the id of the deprovisioning. It is empty in a dry run that would start one.
	Operation string
	// Running reports whether the operation was already running.
	Running bool
	// NotCompleted are the steps that the last deprovisioning did not complete.
	NotCompleted []string
}

// Retrigger starts another deprovisioning of a deleted instance whose last deprovisioning did not complete all steps
// (docs/contracts/broker.md#jobs), or returns the running one. A dry run changes nothing. The error is an *osb.Error: 404 if the
// instance never existed, 409 if no step is left. For the platform the instance stays deleted.
func (b *Broker) Retrigger(ctx context.Context, call osb.Call, instanceID string, dryRun bool) (Retriggered, error) {
	var (
		operationID = newOperationID()
		result      Retriggered
	)
	err := b.deps.Store.InTx(ctx, func(ctx context.Context, tx *store.Tx) error {
		var err error
		result, err = b.retrigger(ctx, tx, call, instanceID, operationID, dryRun)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		err = b.nothingLeft(ctx, instanceID)
	}
	if err != nil {
		return Retriggered{}, answer(err)
	}
	if result.Operation == operationID {
		b.deps.Notify(instanceID)
		b.audit(call, "deprovision again", instanceID, operationID)
	}
	return result, nil
}

func (b *Broker) retrigger(
	ctx context.Context, tx *store.Tx, call osb.Call, instanceID, operationID string, dryRun bool,
) (Retriggered, error) {
	i, err := tx.Lock(ctx, instanceID)
	if err != nil {
		return Retriggered{}, err
	}
	newest, err := tx.Operation(ctx, i.OperationID)
	if err != nil {
		return Retriggered{}, err
	}
	result := Retriggered{NotCompleted: newest.NotCompleted}
	switch {
	case i.DeletedAt.IsZero():
		return Retriggered{}, osb.Conflict("the instance is not deleted with steps not completed: deprovision it at the platform")
	case newest.Type == event.Deprovision && !newest.State.Final():
		result.Operation, result.Running = newest.ID, true
		return result, nil
	case newest.State == event.Succeeded && len(newest.NotCompleted) == 0:
		return Retriggered{}, osb.Conflict("the last deprovisioning completed all its steps: nothing is left to do")
	case dryRun:
		return result, nil
	}
	// The steps depend on the client that deleted the instance, not on the one that retriggers.
	if call.UserAgent, err = tx.UserAgent(ctx, newest.ID); err != nil {
		return Retriggered{}, err
	}
	accepted, err := b.recordRemoval(ctx, tx, &osb.DeprovisionRequest{Call: call, InstanceID: i.ID}, i, newest, operationID)
	result.Operation = accepted.Operation
	return result, err
}

// nothingLeft distinguishes a removed instance from one that never existed.
func (b *Broker) nothingLeft(ctx context.Context, instanceID string) error {
	_, buried, err := b.deps.Store.Known(ctx, instanceID)
	switch {
	case err != nil:
		return err
	case buried:
		return osb.Conflict("the instance is removed with everything behind it: nothing is left to do")
	}
	return osb.NotFound("there is no such instance")
}
