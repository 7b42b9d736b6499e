// Package removal is the broker's step Remove_Instance, the last one of a
// deprovisioning (facts/keb.md 4.2).
package removal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/broker/internal/catalog"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Worker is the worker name under which the broker executes steps, and StepName the step.
const (
	Worker   = "broker"
	StepName = "Remove_Instance"
)

// Asker asks the orchestrator.
type Asker interface {
	Ask(ctx context.Context, subject string, request, answer any) error
}

// Step removes an instance from the broker's database. Running it again changes nothing.
type Step struct {
	store *store.Store
	asker Asker
	now   func() time.Time
	// again is when the step is taken up after something that it needs was away.
	again time.Duration
	// patience is how long the access of bindings in a customer's own cluster is waited for.
	patience time.Duration
}

// New makes the step.
func New(s *store.Store, asker Asker, now func() time.Time, again, patience time.Duration) *Step {
	return &Step{store: s, asker: asker, now: now, again: again, patience: patience}
}

// Name is the name of the step in the process files.
func (*Step) Name() string { return StepName }

var (
	errOutdated = errors.New("the instance has a newer operation")
	errBound    = errors.New("the access of bindings in the customer's cluster is still being removed")
)

// Run removes the instance and its credentials when every step of the deprovisioning was completed. Otherwise it only
// marks the instance deleted: the platform sees it gone, and a later operation still finds what it needs. An instance
// that has a newer operation is not touched, nor is one that is only suspended.
func (s *Step) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if op.Temporary {
		log.Info("instance stays: it is suspended")
		return op, 0, nil
	}
	// The facts that say so may still be on their way, so the orchestrator itself is asked.
	open, err := s.notCompleted(ctx, op.ID)
	if err != nil {
		return worker.Retry(op, s.again, err)
	}
	err = s.store.InTx(ctx, func(ctx context.Context, tx *store.Tx) error {
		i, err := tx.Lock(ctx, op.InstanceID)
		if err != nil {
			return err
		}
		if i.OperationID != op.ID {
			return errOutdated
		}
		if len(open) > 0 {
			return tx.MarkDeleted(ctx, op.InstanceID, s.now())
		}
		// With any other instance its cluster is gone, and everything in it.
		if i.Plan.Name == catalog.OwnCluster {
			bound, err := tx.Bound(ctx, op.InstanceID, s.now().Add(-s.patience))
			if err != nil {
				return err
			}
			if bound {
				return errBound
			}
		}
		return tx.Bury(ctx, op.InstanceID, s.now())
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return op, 0, nil
	case errors.Is(err, errOutdated):
		return worker.Skip(op, errOutdated.Error())
	case errors.Is(err, errBound):
		return worker.Retry(op, s.again, errBound)
	case errors.Is(err, store.ErrUnavailable):
		return worker.Retry(op, s.again, &worker.Error{Component: "db - keb", Reason: "err_db_unknown", Message: "the broker's database is not available"})
	case err != nil:
		return worker.Retry(op, s.again, fmt.Errorf("remove instance: %w", err))
	}
	if len(open) > 0 {
		// Not completed itself, so that the deprovisioning that does the rest runs it again.
		return worker.NotCompleted(op, fmt.Errorf("the instance is kept until these steps are completed: %s", strings.Join(open, ", ")))
	}
	log.Info("instance removed")
	return op, 0, nil
}

func (s *Step) notCompleted(ctx context.Context, operationID string) ([]string, error) {
	var answer event.OperationsAnswer
	err := s.asker.Ask(ctx, event.AskOperations, event.OperationsRequest{IDs: []string{operationID}}, &answer)
	if err != nil {
		return nil, fmt.Errorf("ask which steps are not completed: %w", err)
	}
	for _, o := range answer.Operations {
		if o.OperationID == operationID {
			return o.NotCompleted, nil
		}
	}
	return nil, errors.New("ask which steps are not completed: the orchestrator does not know the operation")
}

// Describe says what the step does.
func Describe() worker.Description {
	return worker.Description{
		Summary: "Removes the instance and its credentials from the broker's database. It keeps an instance that is only suspended, " +
			"and marks one deleted whose deprovisioning has left steps not completed.",
	}
}
