package projection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/broker/internal/instance"
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
	var answer event.OperationsAnswer
	if err := r.asker.Ask(ctx, event.AskOperations, event.OperationsRequest{IDs: ids}, &answer); err != nil {
		return fmt.Errorf("ask for the saved data of %d instances: %w", len(ids), err)
	}
	var changes []instance.Change
	for _, s := range answer.Operations {
		if slices.Contains(ids, s.OperationID) {
			changes = append(changes, instance.Status(s))
		}
	}
	if err := r.ledger.Apply(ctx, changes, r.now()); err != nil {
		return err
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
	var answer event.OperationsAnswer
	if err := r.asker.Ask(ctx, event.AskOperations, event.OperationsRequest{IDs: ids}, &answer); err != nil {
		return fmt.Errorf("ask about %d operations: %w", len(ids), err)
	}
	unknown := make(map[string]bool, len(ids))
	for _, id := range ids {
		unknown[id] = true
	}
	changes := make([]instance.Change, 0, len(answer.Operations))
	for _, s := range answer.Operations {
		if !unknown[s.OperationID] {
			continue // not asked for, or answered twice
		}
		delete(unknown, s.OperationID)
		changes = append(changes, instance.Status(s))
	}
	if err := r.ledger.Apply(ctx, changes, r.now()); err != nil {
		return err
	}
	if len(unknown) > 0 {
		lost := make([]string, 0, len(unknown))
		for id := range unknown {
			lost = append(lost, id)
		}
		r.log.Warn("requests unknown to the orchestrator are published again", "count", len(lost))
		if err := r.ledger.Unpublish(ctx, lost, r.now()); err != nil {
			return err
		}
	}
	return r.ledger.Heard(ctx, ids, r.now())
}
