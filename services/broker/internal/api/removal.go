package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/broker/internal/catalog"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Worker is the name of the broker as a worker, and StepName that of the step.
const (
	Worker   = "broker"
	StepName = event.StepRemoveInstance
	// ReasonUnsettled is the reason for keeping an instance because an unanswered request may still take effect.
	ReasonUnsettled = "err_keb_unsettled"
)

// RemoveInstance is the step Remove_Instance, the last one of a deprovisioning (docs/contracts/processes.md#deprovisioning). It removes an
// instance from the broker's database. It is idempotent.
type RemoveInstance struct {
	Store *store.Store
	Bus   *bus.Bus
	Now   func() time.Time
	// Retry is the delay after a dependency was unavailable.
	Retry time.Duration
	// BindingGrace is the maximum wait for the removal of bindings' access in a customer's own cluster.
	BindingGrace time.Duration
}

// Name returns the name of the step.
func (*RemoveInstance) Name() string { return StepName }

var (
	errOutdated = errors.New("the instance has a newer operation")
	errBound    = errors.New("the access of bindings in the customer's cluster is still being removed")
)

// Run removes the instance and its credentials if the deprovisioning completed all steps, and no earlier request can still create an object.
// Otherwise it only marks the instance as deleted: the platform no longer sees it, and a later operation still has its data. Run ignores an
// instance with a newer operation, and one that is only suspended.
func (s *RemoveInstance) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if op.Temporary {
		log.Info("instance kept: it is suspended")
		return op, 0, nil
	}
	// The facts about these steps may not have arrived yet, so ask the orchestrator.
	why, err := s.keep(ctx, op.ID)
	if err != nil {
		return worker.Retry(op, s.Retry, err)
	}
	err = s.Store.InTx(ctx, func(ctx context.Context, tx *store.Tx) error {
		i, err := tx.Lock(ctx, op.InstanceID)
		if err != nil {
			return err
		}
		if i.OperationID != op.ID {
			return errOutdated
		}
		if why != nil {
			return tx.MarkDeleted(ctx, op.InstanceID, s.Now())
		}
		// For any other plan, the bindings' access was removed with the cluster.
		if i.Plan.Name == catalog.OwnCluster {
			bound, err := tx.Bound(ctx, op.InstanceID, s.Now().Add(-s.BindingGrace))
			if err != nil {
				return err
			}
			if bound {
				return errBound
			}
		}
		return tx.Bury(ctx, op.InstanceID, s.Now())
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return op, 0, nil
	case errors.Is(err, errOutdated):
		return worker.Skip(op, errOutdated.Error())
	case errors.Is(err, errBound):
		return worker.Retry(op, s.Retry, errBound)
	case errors.Is(err, store.ErrUnavailable):
		return worker.Retry(op, s.Retry, &worker.Error{Component: "db - keb", Reason: "err_db_unknown", Message: "the broker's database is not available"})
	case err != nil:
		return worker.Retry(op, s.Retry, fmt.Errorf("remove instance: %w", err))
	}
	if why != nil {
		// This step is not completed either, so the next deprovisioning runs it again.
		return worker.NotCompleted(op, why)
	}
	log.Info("instance removed")
	return op, 0, nil
}

// keep returns why the instance must be kept for another deprovisioning, or nil.
func (s *RemoveInstance) keep(ctx context.Context, operationID string) (why, err error) {
	var answer event.OperationsAnswer
	err = s.Bus.Ask(ctx, event.AskOperations, event.OperationsRequest{IDs: []string{operationID}}, &answer)
	if err != nil {
		return nil, fmt.Errorf("ask which steps are not completed: %w", err)
	}
	for _, o := range answer.Operations {
		switch {
		case o.OperationID != operationID:
		case len(o.NotCompleted) > 0:
			return fmt.Errorf("the instance is kept until these steps are completed: %s", strings.Join(o.NotCompleted, ", ")), nil
		case o.UnsettledUntil != nil:
			return &worker.Error{Component: worker.ComponentKEB, Reason: ReasonUnsettled, Message: fmt.Sprintf("an earlier request for the instance "+
				"got no answer and may take effect until %s; the instance will then be deprovisioned again", o.UnsettledUntil.Format(time.RFC3339))}, nil
		default:
			return nil, nil
		}
	}
	return nil, errors.New("ask which steps are not completed: the orchestrator does not know the operation")
}

// DescribeRemoveInstance describes the step.
func DescribeRemoveInstance() worker.Description {
	return worker.Description{
		Summary: "Removes the instance and its credentials from the broker's database. It keeps a suspended instance, " +
			"and only marks it as deleted if the deprovisioning did not complete all steps, or if an unanswered request may still take effect.",
	}
}
