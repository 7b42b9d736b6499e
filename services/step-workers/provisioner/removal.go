package provisioner

import (
	"context"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// removal is the state of a runtime's removal.
type removal struct {
	// gone means that the runtime does not exist.
	gone bool
	// waiting means that another operation of the runtime must end first.
	waiting bool
	// operationID is the operation that removes the runtime, unless gone or waiting.
	operationID string
}

// remove starts the removal of the instance's runtime, unless it is already removed or being removed.
func (s *shared) remove(ctx context.Context, op worker.Operation, d *Details) (removal, error) {
	if err := s.findAnywhere(ctx, op, d); err != nil && !isForeignShoot(err) {
		return removal{}, err
	}
	if d.RuntimeID == "" {
		return removal{gone: true}, nil
	}
	account := op.Context.GlobalAccountID
	status, err := s.runtimes.RuntimeStatus(ctx, account, d.RuntimeID)
	if extclient.IsNotFound(err) {
		return removal{gone: true}, nil
	}
	if err != nil {
		return removal{}, err
	}
	// An execution that was killed after its order saved nothing.
	d.Kyma = d.Kyma || status.LastOperation.WithKyma()
	switch last := status.LastOperation; {
	case last.Removal() && last.State != StateFailed:
		return removal{operationID: last.ID}, nil
	case last.Running():
		// The Runtime Provisioner runs one operation per runtime: an unfinished creation must end first.
		return removal{waiting: true}, nil
	}
	id, err := s.runtimes.DeprovisionRuntime(ctx, account, d.RuntimeID)
	if extclient.IsNotFound(err) {
		return removal{gone: true}, nil
	}
	if err != nil {
		return removal{}, err
	}
	op.NoteRemoved("runtime " + d.RuntimeID)
	return removal{operationID: id}, nil
}

// forget clears all saved data of the runtime.
func forget(op worker.Operation) error {
	return op.SaveDetails(map[string]any{"runtimeId": nil, "operationId": nil, "removalOperationId": nil, "upgrade": nil, "kyma": nil, "kubernetesVersion": nil})
}
