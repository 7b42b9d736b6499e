package provisioner

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/hyperscaler"
)

// createRuntimeWithoutKyma orders the runtime from the Runtime Provisioner, once.
func (s *shared) createRuntimeWithoutKyma(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	return s.order(ctx, op, false, log, s.newRuntimeInput)
}

// order orders the runtime with the input of describe, unless it already exists. It removes one whose creation failed first. A saved one may
// have been deleted by hand, before an operator repeats the stage.
func (s *shared) order(
	ctx context.Context, op worker.Operation, withKyma bool, log *slog.Logger, describe func(op worker.Operation, targetSecret string) (RuntimeInput, error),
) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return op, 0, err
	}
	// A failed suspension has begun to remove a runtime without an operation id, or its creation failed: it must not be used.
	isOrdered := d.RuntimeID != "" && d.OperationID != ""
	former := d.RuntimeID != "" && !isOrdered
	if err := s.find(ctx, op, &d); err != nil {
		return op, s.cfg.RetryInterval, err
	}
	if d.RuntimeID != "" {
		next, err := s.inspect(ctx, op, &d, former)
		switch {
		case err == nil && next.state == ordered && isOrdered:
			return op, 0, nil
		case err != nil || next.state != gone:
			return s.useExisting(op, d, next, err, log)
		case isOrdered && withKyma:
			// The steps before this one were skipped (UnlessOrdered), so a new order would lack their secrets.
			if err := forget(op); err != nil {
				return op, 0, err
			}
			return worker.Fail(op, &worker.Error{
				Component: component, Reason: worker.ReasonState,
				Message: "the ordered runtime " + d.RuntimeID + " does not exist any more: retry again from this stage to order another one",
			})
		}
	}
	var saved hyperscaler.Details
	if err := op.Details(hyperscaler.Name, &saved); err != nil {
		return op, 0, err
	}
	input, err := describe(op, saved.TargetSecret)
	if err != nil {
		return op, s.cfg.RetryInterval, &worker.Error{Err: err}
	}
	status, err := s.runtimes.ProvisionRuntime(ctx, op.Context.GlobalAccountID, op.Context.SubaccountID, input)
	if err == nil {
		log.Info("runtime ordered", "runtime_id", status.RuntimeID)
		return op, 0, saveOrdered(op, status.RuntimeID, status.ID)
	}
	// The Runtime Provisioner of 2020 chooses the name of the Shoot, so no Shoot leads to an earlier order of a runtime with Kyma.
	if _, refused := errors.AsType[*extclient.GraphQLError](err); !refused || withKyma {
		return op, s.cfg.RetryInterval, err
	}
	return s.refused(ctx, op, err, log)
}

// refused searches for the reason of a rejected order. An earlier execution may have ordered the runtime and ended before it saved the
// answer. Two Shoots cannot have the same name, and the Shoot contains the id of its runtime.
func (s *shared) refused(ctx context.Context, op worker.Operation, refusal error, log *slog.Logger) (worker.Operation, time.Duration, error) {
	id, err := s.shoots.runtimeOf(ctx, op)
	if err != nil && extclient.IsTemporary(err) {
		return op, s.cfg.RetryInterval, err
	}
	if err != nil || id == "" {
		return op, s.cfg.RetryInterval, errors.Join(refusal, err)
	}
	d := Details{RuntimeID: id}
	next, err := s.inspect(ctx, op, &d, false)
	if err == nil && next.state == gone {
		// The Shoot exists, but the Runtime Provisioner has no runtime with that id.
		err = refusal
	}
	return s.useExisting(op, d, next, err, log)
}

// existing is the existing runtime that an order finds.
type existing struct {
	state existingState
	// operationID is the operation that creates the runtime.
	operationID string
}

type existingState int

const (
	// gone means that the runtime does not exist, and a new one can be ordered.
	gone existingState = iota
	// removing means that the runtime is being removed.
	removing
	// ordered means that an earlier execution ordered the runtime.
	ordered
)

// inspect checks the runtime d.RuntimeID. It removes a former one.
func (s *shared) inspect(ctx context.Context, op worker.Operation, d *Details, former bool) (existing, error) {
	status, err := s.runtimes.RuntimeStatus(ctx, op.Context.GlobalAccountID, d.RuntimeID)
	switch last := status.LastOperation; {
	case extclient.IsNotFound(err), err == nil && status.Removed():
		return existing{state: gone}, nil
	case err != nil:
		return existing{}, err
	case former, last.Removal():
		r, err := s.remove(ctx, op, d)
		if err != nil || r.gone {
			return existing{state: gone}, err
		}
		return existing{state: removing}, nil
	default:
		return existing{state: ordered, operationID: last.ID}, nil
	}
}

// useExisting ends an execution that found an existing runtime.
func (s *shared) useExisting(op worker.Operation, d Details, m existing, err error, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if err != nil {
		return op, s.cfg.RetryInterval, err
	}
	if m.state == removing {
		return worker.Wait(op, s.cfg.RetryInterval, "the former runtime of the instance is being removed")
	}
	log.Info("found the runtime of an earlier attempt", "runtime_id", d.RuntimeID)
	return op, 0, saveOrdered(op, d.RuntimeID, m.operationID)
}

// saveOrdered saves the ids of the ordered runtime and clears the data of a former one.
func saveOrdered(op worker.Operation, runtimeID, operationID string) error {
	return op.SaveDetails(map[string]any{"runtimeId": runtimeID, "operationId": operationID, "removalOperationId": nil, "upgrade": nil})
}
