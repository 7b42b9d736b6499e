package dispatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// SendAgain sends the command of an operation again, with a new dispatch number and the content that follows from the operation. cursor is that of
// a command that its worker could not handle. The error wraps store.ErrNotFound if the operation does not exist, and engine.ErrNotPossible if it
// no longer awaits the result of that command, or if no live worker serves the step.
func (d *Dispatcher) SendAgain(ctx context.Context, operationID string, cursor int64) error {
	begun := d.deps.Now()
	if _, err := uuid.Parse(operationID); err != nil {
		return store.ErrNotFound
	}
	found, err := d.deps.Store.Load(ctx, []string{operationID})
	if err != nil {
		return err
	}
	row := found[operationID]
	if row == nil {
		return store.ErrNotFound
	}
	if !row.InFlight() || row.AwaitedCursor() != cursor {
		return fmt.Errorf("operation %s: %w: it no longer awaits the result of the command", operationID, engine.ErrNotPossible)
	}
	p, err := d.deps.Definitions.Pinned(ctx, row.Definition)
	if err != nil {
		return err
	}
	// A command that is sent from now on is another one.
	worker, command := engine.Command(p, &row.State)
	alive, _ := d.serves(&row.Operation, row.StartedAt, worker, command.Step)
	err = d.Act(ctx, operationID, engine.Due{WorkerAlive: alive, LostBefore: begun, ResultsOnly: true})
	if errors.Is(err, engine.ErrNoWorker) {
		return fmt.Errorf("operation %s: %w: no live worker %s serves the step %s", operationID, engine.ErrNotPossible, worker, command.Step)
	}
	return err
}
