package projection

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

// Ledger is the read model as the repair sees it.
type Ledger interface {
	Applier
	Silent(ctx context.Context, since time.Time, after int64, limit int) (ids []string, next int64, err error)
	Heard(ctx context.Context, operationIDs []string, at time.Time) error
	Unpublish(ctx context.Context, operationIDs []string, at time.Time) error
	WithoutDetails(ctx context.Context, after string, limit int) (operationIDs []string, last string, err error)
}

// Asker asks the orchestrator.
type Asker interface {
	Ask(ctx context.Context, subject string, request, answer any) error
}

// RepairConfig are the times of the repair.
type RepairConfig struct {
	// Every is how often silent operations are looked for, and Silence how long an operation is silent before.
	Every, Silence time.Duration
}

// Repair asks the orchestrator about operations of which nothing was heard for a while.
type Repair struct {
	cfg    RepairConfig
	ledger Ledger
	asker  Asker
	log    *slog.Logger
	now    func() time.Time
	after  int64
	// caughtUp tells that catchUp has come to its end, and reached the instance up to which it has come.
	caughtUp bool
	reached  string
}

// NewRepair makes a repair; Run makes it work.
func NewRepair(cfg RepairConfig, ledger Ledger, asker Asker, log *slog.Logger, now func() time.Time) *Repair {
	return &Repair{cfg: cfg, ledger: ledger, asker: asker, log: log, now: now}
}

// batch is how many operations the orchestrator is asked about at once (event.OperationsRequest).
const batch = 500

// Run repairs until ctx ends.
func (r *Repair) Run(ctx context.Context) error {
	return service.Every(ctx, r.cfg.Every, r.log, "repair of operations", func(ctx context.Context) error {
		return errors.Join(r.Once(ctx), r.catchUp(ctx))
	})
}

// catchUp asks for the saved data of one batch of instances that have none, once after each start: those that an earlier release
// has made, which did not keep it, would have no runtime until their next operation.
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

// Once asks about one batch of silent operations; the next call goes on behind it. A request that the orchestrator does
// not know was lost on the way, and is published again.
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
		r.log.Warn("requests unknown to the orchestrator are published again", "count", len(lost))
		if err := r.ledger.Unpublish(ctx, lost, r.now()); err != nil {
			return err
		}
	}
	return r.ledger.Heard(ctx, ids, r.now())
}

// ask asks about operations and applies the answers; what does not fit into one answer is asked for again. It returns the ids of the
// operations that the orchestrator does not know.
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
				continue // not asked for, or answered twice
			}
			delete(open, s.OperationID)
			changes = append(changes, instance.Status(s))
		}
		if err := r.apply(ctx, changes); err != nil {
			return nil, err
		}
		if len(changes) == 0 && len(answer.Left) > 0 {
			return nil, fmt.Errorf("ask about %d operations: the answer has none of them, and says that %d are left", len(left), len(answer.Left))
		}
		left = slices.DeleteFunc(answer.Left, func(id string) bool { return !open[id] })
	}
	return slices.Sorted(maps.Keys(open)), nil
}

// apply applies changes, those that the database refuses excepted: they must not hold up the others.
func (r *Repair) apply(ctx context.Context, changes []instance.Change) error {
	err := r.ledger.Apply(ctx, changes, r.now())
	if !errors.Is(err, store.ErrRefused) {
		return err
	}
	for i := range changes {
		err := r.ledger.Apply(ctx, changes[i:i+1], r.now())
		switch {
		case errors.Is(err, store.ErrRefused):
			r.log.Error("state of an operation refused", "operation_id", changes[i].OperationID, "err", err)
		case err != nil:
			return err
		}
	}
	return nil
}
