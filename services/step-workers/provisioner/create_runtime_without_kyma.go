package provisioner

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/hyperscaler"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// createRuntimeWithoutKyma orders the runtime from the Runtime Provisioner, once.
type createRuntimeWithoutKyma struct{ *shared }

// Name implements worker.Step.
func (createRuntimeWithoutKyma) Name() string { return "Create_Runtime_Without_Kyma" }

// Describe implements worker.Described.
func (s createRuntimeWithoutKyma) Describe() worker.Description {
	return worker.Description{
		Summary: "Orders the runtime from the Runtime Provisioner.",
		Calls: lookUps(s.director,
			worker.Call{System: component, Operation: "runtimeStatus"},
			worker.Call{System: component, Operation: "deprovisionRuntime"},
			worker.Call{System: component, Operation: "provisionRuntime"},
		),
		Details: []string{"runtimeId", "operationId", "removalOperationId", "upgrade"},
	}
}

// Run implements worker.Step.
func (s createRuntimeWithoutKyma) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	return s.order(ctx, op, log, s.newRuntimeInput)
}

// order orders the runtime that describe describes, unless it is there already.
func (s *shared) order(
	ctx context.Context, op worker.Operation, log *slog.Logger, describe func(op worker.Operation, targetSecret string) (RuntimeInput, error),
) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	if d.RuntimeID != "" && d.OperationID != "" {
		return op, 0, nil
	}
	// A suspension that failed has begun with the removal, and what it has taken away already would be missing in this runtime.
	former := d.RuntimeID != ""
	if err := s.find(ctx, op, &d); err != nil {
		return outcome.Of(op, component, s.cfg.RetryInterval, err)
	}
	if d.RuntimeID != "" {
		next, err := s.meet(ctx, op, &d, former)
		if err != nil || next.met != gone {
			return s.take(op, d, next, err, log)
		}
	}
	var saved hyperscaler.Details
	if err := op.Details(hyperscaler.Name, &saved); err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	input, err := describe(op, saved.TargetSecret)
	if err != nil {
		return outcome.Of(op, "keb", s.cfg.RetryInterval, err)
	}
	status, err := s.runtimes.ProvisionRuntime(ctx, op.Context.GlobalAccountID, op.Context.SubaccountID, input)
	if err == nil {
		log.Info("runtime ordered", "runtime_id", status.RuntimeID)
		return op, 0, saveOrdered(op, status.RuntimeID, status.ID)
	}
	if _, refused := errors.AsType[*extclient.GraphQLError](err); !refused {
		return outcome.Of(op, component, s.cfg.RetryInterval, err)
	}
	return s.refused(ctx, op, err, log)
}

// refused looks for the reason why an order was refused. One is that an earlier execution has ordered the runtime, and ended before
// it could save the answer: two Shoots cannot have one name, and the Shoot says which runtime it belongs to.
func (s *shared) refused(ctx context.Context, op worker.Operation, refusal error, log *slog.Logger) (worker.Operation, time.Duration, error) {
	id, err := s.shoots.runtimeOf(ctx, op)
	if err != nil && extclient.IsTemporary(err) {
		return outcome.Of(op, component, s.cfg.RetryInterval, err)
	}
	if err != nil || id == "" {
		return outcome.Of(op, component, s.cfg.RetryInterval, errors.Join(refusal, err))
	}
	d := Details{RuntimeID: id}
	next, err := s.meet(ctx, op, &d, false)
	if err == nil && next.met == gone {
		// The Shoot is there, and the Runtime Provisioner does not know its runtime.
		err = refusal
	}
	return s.take(op, d, next, err, log)
}

// meeting is what an order finds of a runtime of the instance.
type meeting struct {
	met
	// operationID is the operation that creates it.
	operationID string
}

type met int

const (
	// gone: there is no runtime any more, and a new one can be ordered.
	gone met = iota
	// leaving: it is being removed.
	leaving
	// ordered: it is the one that an earlier execution has ordered.
	ordered
)

// meet looks at the runtime d.RuntimeID. A former one is removed.
func (s *shared) meet(ctx context.Context, op worker.Operation, d *Details, former bool) (meeting, error) {
	status, err := s.runtimes.RuntimeStatus(ctx, op.Context.GlobalAccountID, d.RuntimeID)
	switch last := status.LastOperation; {
	case extclient.IsNotFound(err), err == nil && status.Removed():
		return meeting{met: gone}, nil
	case err != nil:
		return meeting{}, err
	case former, last.Removal():
		r, err := s.remove(ctx, op, d)
		if err != nil || r.gone {
			return meeting{met: gone}, err
		}
		return meeting{met: leaving}, nil
	default:
		return meeting{met: ordered, operationID: last.ID}, nil
	}
}

// take ends an execution that has met a runtime.
func (s *shared) take(op worker.Operation, d Details, m meeting, err error, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if err != nil {
		return outcome.Of(op, component, s.cfg.RetryInterval, err)
	}
	if m.met == leaving {
		return worker.Wait(op, s.cfg.RetryInterval, "the former runtime of the instance is being removed")
	}
	log.Info("found the runtime of an earlier attempt", "runtime_id", d.RuntimeID)
	return op, 0, saveOrdered(op, d.RuntimeID, m.operationID)
}

// saveOrdered saves the runtime that was ordered. What was saved about a former one is not about it.
func saveOrdered(op worker.Operation, runtimeID, operationID string) error {
	return op.SaveDetails(map[string]any{"runtimeId": runtimeID, "operationId": operationID, "removalOperationId": nil, "upgrade": nil})
}
