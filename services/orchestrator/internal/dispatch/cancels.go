package dispatch

import (
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// cancelled is a command that its worker should end early.
type cancelled struct {
	worker string
	notice event.CancelNotice
}

// noteCancel records that the worker of the command in flight should end it early: the cancellation of the operation is requested, or the
// operation no longer waits for the command. A result has ended its own execution, but not that of another dispatch of the command.
func (w *work) noteCancel(e engine.Event, after *engine.State) {
	before := &w.row.State
	if !before.Awaits() || w.effects.Dispatch { // a command of this batch is not sent yet
		return
	}
	left := !after.Awaits() || after.AwaitedCursor() != before.AwaitedCursor()
	var reason string
	switch e := e.(type) {
	case engine.Hold, engine.Release:
		return
	case engine.Cancel:
		reason = after.CancelReason
	case engine.SkipStep:
		reason = "the step was skipped by " + e.By
	case engine.Result:
		left = left && before.Dispatch > 1
		reason = "another execution of the command has ended"
	default:
		reason = "the time for the step is over"
	}
	if _, requested := e.(engine.Cancel); !left && !requested {
		return
	}
	w.cancelled = append(w.cancelled, cancelled{engine.Next(w.process, before).Worker, event.CancelNotice{
		CommandRef: event.CommandRef{OperationID: before.Operation.ID, Cursor: before.AwaitedCursor()}, Reason: reason,
	}})
}

// notifyWorkers notifies workers of commands that they should end early. A lost notice does no harm: the command ends at its limit.
func (d *Dispatcher) notifyWorkers(works []*work) {
	if d.deps.Notifier == nil {
		return
	}
	for _, w := range works {
		for _, c := range w.cancelled {
			if err := d.deps.Notifier.Notify(event.CancelSubject(c.worker), c.notice); err != nil {
				d.log.Debug("worker not notified of a cancelled command", "operation_id", c.notice.OperationID, "worker", c.worker, "err", err)
			}
		}
	}
}
