package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

const (
	// uncheckedDelay is the pause before a command of which nobody could say whether it is still waited for is offered again.
	uncheckedDelay = time.Second
	// uncheckedLog is the time between two lines in the log about such commands.
	uncheckedLog = 10 * time.Second
)

// current returns the commands that are to be executed, in their order. Of those that were delivered before, the result may be out, of
// a process that could not acknowledge the command any more: the stage may have ended since, or the operation. The orchestrator
// knows. What it does not wait for is dropped. When it says nothing in time nobody executes on a guess: the command goes back to the
// bus, until there is an answer, or it is late.
func (p *pool) current(ctx context.Context, patience time.Duration, admitted []*taken) []*taken {
	var again []*taken
	for _, t := range admitted {
		if t.again() {
			again = append(again, t)
		}
	}
	if len(again) == 0 {
		return admitted
	}
	answers := p.askCurrent(ctx, patience, again)
	if ctx.Err() != nil {
		return admitted // the worker stops: the answer may be missing for that alone, and all of them are handed over
	}
	current := make([]*taken, 0, len(admitted))
	for _, t := range admitted {
		is, answered := answers[t.ref()]
		switch {
		case is || !t.again():
			current = append(current, t)
		case answered:
			p.w.metrics.ignored[ignoredOutdated].Inc()
			p.w.log.Debug("command dropped that came again, as it is not waited for any more", t.logArgs()...)
			// In this order, as in acknowledge.
			p.settle(t, t.delivery.Ack())
			p.forget(t)
		default:
			p.w.metrics.ignored[ignoredUnchecked].Inc()
			p.giveBack(t, uncheckedDelay)
		}
	}
	return current
}

// askCurrent asks the orchestrator about commands, and tells of those that it has answered for whether they are current.
func (p *pool) askCurrent(ctx context.Context, patience time.Duration, commands []*taken) map[event.CommandRef]bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answers := make(map[event.CommandRef]bool, len(commands))
	subject := event.AskCurrentAs(p.w.cfg.Name)
	for chunk := range slices.Chunk(commands, event.MaxCurrent) {
		request := event.CurrentRequest{Commands: make([]event.CommandRef, len(chunk))}
		for i, t := range chunk {
			request.Commands[i] = t.ref()
		}
		var answer event.CurrentAnswer
		if err := p.w.deps.Bus.AskWithTimeout(ctx, patience, subject, request, &answer); err != nil {
			if errors.Is(ctx.Err(), context.Canceled) {
				return answers
			}
			p.unchecked.Do(func() {
				p.w.log.Warn("nobody says whether commands that came again are still waited for, so they wait", "commands", len(chunk), "err", err)
			})
			continue
		}
		for _, ref := range request.Commands {
			answers[ref] = false
		}
		for _, ref := range answer.Current {
			if _, asked := answers[ref]; asked {
				answers[ref] = true
			}
		}
	}
	return answers
}

// again tells that the command was delivered before, to this process or to another.
func (t *taken) again() bool { return t.delivery.NumDelivered() > 1 }

func (t *taken) ref() event.CommandRef {
	return event.CommandRef{OperationID: t.command.Operation.ID, Cursor: t.command.Cursor}
}
