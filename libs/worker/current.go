package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

const (
	// uncheckedDelay is the redelivery delay of a command that the orchestrator has not confirmed as current.
	uncheckedDelay = time.Second
	// uncheckedLog is the minimum interval of log messages about such commands.
	uncheckedLog = 10 * time.Second
	// extendedFor is how long after the limit in its message a redelivered command is kept while the orchestrator does not answer whether its
	// limit was extended. After that, the orchestrator sends it again at the extended limit.
	extendedFor = 10 * time.Minute
)

// current returns the commands to execute, in order. A redelivered command may already have a result, from a process that could not
// acknowledge it, so current asks the orchestrator whether it still expects one and drops the command if not. Without an answer in
// time, the command is not executed but returned to the bus, until there is an answer or its time has been over for extendedFor.
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
		return admitted // the worker stops and returns all commands
	}
	current := make([]*taken, 0, len(admitted))
	for _, t := range admitted {
		is, answered := answers.current[t.ref()]
		if is {
			p.setExtended(t, answers.extended[t.ref()])
		}
		late := t.again() && !p.isInTime(t)
		switch {
		case late && (is || !answered && p.w.now().After(t.command.ExecuteBefore.Add(extendedFor))):
			p.dropLate(t)
			p.forget(t)
		case is || !t.again():
			current = append(current, t)
		case answered:
			p.w.metrics.ignored[ignoredOutdated].Inc()
			p.w.log.Debug("redelivered command dropped: the orchestrator no longer expects a result", t.logArgs()...)
			// The order matters, see acknowledge.
			p.settle(t, t.delivery.Ack())
			p.forget(t)
		default:
			p.w.metrics.ignored[ignoredUnchecked].Inc()
			p.giveBack(t, uncheckedDelay)
		}
	}
	return current
}

// answers are the answers to questions about commands.
type answers struct {
	// current reports whether a command is current; it contains only commands with an answer. extended are the commands with an extended limit.
	current  map[event.CommandRef]bool
	extended map[event.CommandRef]event.Extended
}

// setExtended applies the extended limit of a redelivered command. Another dispatch keeps its limit: the extended one has another copy.
func (p *pool) setExtended(t *taken, e event.Extended) {
	if e.Dispatch != t.command.Dispatch {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t.executeBefore = e.ExecuteBefore
}

// askCurrent asks the orchestrator which commands are current.
func (p *pool) askCurrent(ctx context.Context, patience time.Duration, commands []*taken) answers {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	all := answers{make(map[event.CommandRef]bool, len(commands)), map[event.CommandRef]event.Extended{}}
	subject := event.AskCurrentAs(p.w.cfg.Name)
	for chunk := range slices.Chunk(commands, event.MaxCurrent) {
		request := event.CurrentRequest{Commands: make([]event.CommandRef, len(chunk))}
		for i, t := range chunk {
			request.Commands[i] = t.ref()
		}
		var answer event.CurrentAnswer
		if err := p.w.deps.Bus.AskWithTimeout(ctx, patience, subject, request, &answer); err != nil {
			if errors.Is(ctx.Err(), context.Canceled) {
				return all
			}
			p.unchecked.Do(func() {
				p.w.log.Warn("no answer whether redelivered commands are current; they are delayed", "commands", len(chunk), "err", err)
			})
			continue
		}
		for _, ref := range request.Commands {
			all.current[ref] = false
		}
		for _, ref := range answer.Current {
			if _, asked := all.current[ref]; asked {
				all.current[ref] = true
			}
		}
		for _, e := range answer.Extended {
			all.extended[e.CommandRef] = e
		}
	}
	return all
}

// redelivered reports whether the command was delivered before, to this or another process.
func (t *taken) redelivered() bool { return t.delivery.NumDelivered() > 1 }

// again reports whether the command was redelivered, or may have been: a server of the bus that lost its power has also lost its latest
// acknowledgements and counts of deliveries.
func (t *taken) again() bool { return t.redelivered() || t.delivery.OlderThanConnection() }

func (t *taken) ref() event.CommandRef {
	return event.CommandRef{OperationID: t.command.Operation.ID, Cursor: t.command.Cursor}
}
