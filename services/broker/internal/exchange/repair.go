package exchange

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/broker/internal/instance"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Ledger is the repair's view of the read model.
type Ledger interface {
	Applier
	Silent(ctx context.Context, since time.Time, after int64, limit int) (ids []string, next int64, err error)
	Heard(ctx context.Context, operationIDs []string, at time.Time) error
	Unpublish(ctx context.Context, operationIDs []string, at time.Time) error
	WithoutDetails(ctx context.Context, after string, limit int) (operationIDs []string, last string, err error)
}

// Asker sends requests to the orchestrator.
type Asker interface {
	Ask(ctx context.Context, subject string, request, answer any) error
}

// RepairConfig holds the times of the repair.
type RepairConfig struct {
	// Every is the interval of the search for silent operations. An operation is silent if it sent no fact for Silence.
	Every, Silence time.Duration
}

// Repair queries the orchestrator about silent operations.
type Repair struct {
	cfg    RepairConfig
	ledger Ledger
	asker  Asker
	log    *slog.Logger
	now    func() time.Time
	after  int64
	// caughtUp reports whether catchUp is finished; reached is the instance that it has reached.
	caughtUp bool
	reached  string
}

// NewRepair creates a repair. Run starts it.
func NewRepair(cfg RepairConfig, ledger Ledger, asker Asker, log *slog.Logger, now func() time.Time) *Repair {
	return &Repair{cfg: cfg, ledger: ledger, asker: asker, log: log, now: now}
}

// batch is the number of operations in one query to the orchestrator (event.OperationsRequest).
const batch = 500

// Run repairs until ctx ends.
func (r *Repair) Run(ctx context.Context) error {
	return service.Every(ctx, r.cfg.Every, r.log, "repair of operations", func(ctx context.Context) error {
		return errors.Join(r.Once(ctx), r.catchUp(ctx))
	})
}

// catchUp queries the saved data for one batch of instances without any, once after each start. Instances of an earlier release,
// which did not keep that data, would otherwise have no runtime until their next operation.
func (r *Repair) catchUp(ctx context.Context) error {
	if r.caughtUp {
		return nil
	}
	ids, last, err := r.ledger.WithoutDetails(ctx, r.reached, batch)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		r.caughtUp = true
		return nil
	}
	if _, err := r.ask(ctx, ids); err != nil {
		return fmt.Errorf("saved data of instances: %w", err)
	}
	r.reached = last
	return nil
}

// Once queries one batch of silent operations; the next call continues after it. If the orchestrator does not know an operation,
// its request was lost, and Once marks it for publication.
func (r *Repair) Once(ctx context.Context) error {
	ids, next, err := r.ledger.Silent(ctx, r.now().Add(-r.cfg.Silence), r.after, batch)
	if err != nil {
		return err
	}
	r.after = next
	if len(ids) == 0 {
		return nil
	}
	lost, err := r.ask(ctx, ids)
	if err != nil {
		return err
	}
	if len(lost) > 0 {
		r.log.Warn("publishing requests again that the orchestrator does not know", "count", len(lost))
		if err := r.ledger.Unpublish(ctx, lost, r.now()); err != nil {
			return err
		}
	}
	return r.ledger.Heard(ctx, ids, r.now())
}

// ask queries operations and applies the answers. It queries again for operations that did not fit into one answer. It returns the
// ids of unknown operations.
func (r *Repair) ask(ctx context.Context, ids []string) (unknown []string, err error) {
	open := make(map[string]bool, len(ids))
	for _, id := range ids {
		open[id] = true
	}
	for left := ids; len(left) > 0; {
		var answer event.OperationsAnswer
		if err := r.asker.Ask(ctx, event.AskOperations, event.OperationsRequest{IDs: left}, &answer); err != nil {
			return nil, fmt.Errorf("ask about %d operations: %w", len(left), err)
		}
		changes := make([]instance.Change, 0, len(answer.Operations))
		for _, s := range answer.Operations {
			if !open[s.OperationID] {
				continue // unexpected or repeated answer
			}
			delete(open, s.OperationID)
			changes = append(changes, instance.Status(s))
		}
		if err := r.apply(ctx, changes); err != nil {
			return nil, err
		}
		if len(changes) == 0 && len(answer.Left) > 0 {
			return nil, fmt.Errorf("ask about %d operations: the answer contains none of them; %d are left", len(left), len(answer.Left))
		}
		left = slices.DeleteFunc(answer.Left, func(id string) bool { return !open[id] })
	}
	return slices.Sorted(maps.Keys(open)), nil
}

// apply applies changes and skips those that the database rejects, so that they do not block the others.
func (r *Repair) apply(ctx context.Context, changes []instance.Change) error {
	err := r.ledger.Apply(ctx, changes, r.now())
	if !errors.Is(err, store.ErrRefused) {
		return err
	}
	for i := range changes {
		err := r.ledger.Apply(ctx, changes[i:i+1], r.now())
		switch {
		case errors.Is(err, store.ErrRefused):
			r.log.Error("state of an operation rejected by the database", "operation_id", changes[i].OperationID, "err", err)
		case err != nil:
			return err
		}
	}
	return nil
}
