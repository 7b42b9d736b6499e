package dispatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// SendAgain sends the command of an operation again, with a new dispatch number and the content that follows from the operation. cursor is that of
// a command that its worker could not handle. The error wraps store.ErrNotFound if the operation does not exist, and engine.ErrNotPossible if it
// no longer awaits the result of that command, or if no live worker serves the step.
func (d *Dispatcher) SendAgain(ctx context.Context, operationID string, cursor int64) error {
	begun := d.deps.Now()
	row, p, err := d.load(ctx, operationID)
	if err != nil {
		return err
	}
	if !row.InFlight() || row.AwaitedCursor() != cursor {
		return fmt.Errorf("operation %s: %w: it no longer awaits the result of the command", operationID, engine.ErrNotPossible)
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
