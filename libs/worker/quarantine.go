package worker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/stagemem"
)

const (
	// maxDeaths is how often commands of a step may end their process. The next one is quarantined.
	maxDeaths = 3
	// quarantineDelay is the time to the next try of the step.
	quarantineDelay = 2 * time.Minute
	// deathsTimeout limits one access to the count of deaths.
	deathsTimeout = 2 * time.Second
)

// fate is what happens to a command that comes again.
type fate int

const (
	executed fate = iota
	// postponed commands come again: another one with as many deaths runs in this process.
	postponed
	quarantined
)

// trial is the execution of a command that comes again and may have ended its process. Its deaths are counted in the stage memory: the count
// is raised before the execution and lowered after it, so a process that dies leaves the raised count behind. The first delivery of a command
// is not counted, which would cost two requests for each command. If a command comes again without a count, its first process is presumed
// dead, unless it gave the command back as it stopped.
type trial struct {
	p     *pool
	scope stagemem.Scope
	step  string
	// deaths is the count before this execution.
	deaths int
}

// try begins the execution of a command that comes again. The trial is nil for any other command, and without a stage memory.
func (p *pool) try(t *taken) (*trial, fate) {
	if p.w.deps.StageMemory == nil || !t.redelivered() && t.command.Dispatch <= 1 {
		return nil, executed
	}
	x := p.trialOf(t)
	err := x.read()
	if err == nil && x.deaths >= maxDeaths {
		x.write(maxDeaths - 1) // one chance for the next try of the step
		return x, quarantined
	}
	if err == nil && x.deaths == maxDeaths-1 && !p.isolate(t) {
		return nil, postponed
	}
	if err == nil {
		err = x.put(x.deaths + 1)
	}
	if err != nil {
		p.w.log.Warn("command is executed although its crashes cannot be counted", append(t.logArgs(), "err", err)...)
		return nil, executed
	}
	p.mu.Lock()
	t.trial = x
	p.mu.Unlock()
	return x, executed
}

func (p *pool) trialOf(t *taken) *trial {
	return &trial{p: p, scope: stagemem.Deaths(t.command.Operation.ID, t.command.Stage), step: t.command.Step}
}

// isolate reports whether the command may run: commands that have one chance left run one at a time, so that a command that ends the process
// does not spend the chances of the others.
func (p *pool) isolate(t *taken) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if other := p.isolated; other != nil && !other.left {
		return false
	}
	p.isolated = t
	return true
}

// end lowers the count after the step has returned. A step that was interrupted because the process stops keeps the count of before.
func (x *trial) end(interrupted bool) {
	switch {
	case x == nil:
	case interrupted:
		x.write(x.deaths)
	default:
		x.write(0)
	}
}

// abandoned lowers the count: the step hangs, and the process lives.
func (x *trial) abandoned() {
	if x != nil {
		x.write(x.deaths)
	}
}

// spare records that a command comes again because this process stops.
func (p *pool) spare(t *taken) {
	if p.w.deps.StageMemory != nil && !t.redelivered() && t.command.Dispatch <= 1 {
		p.trialOf(t).write(0)
	}
}

func (x *trial) read() error {
	ctx, cancel := context.WithTimeout(x.p.publishCtx, deathsTimeout)
	defer cancel()
	value, err := x.p.w.deps.StageMemory.Get(ctx, x.scope, x.step)
	if errors.Is(err, stagemem.ErrNotFound) {
		x.deaths = 1
		return nil
	}
	if err == nil {
		x.deaths, err = strconv.Atoi(string(value))
	}
	return err
}

func (x *trial) put(deaths int) error {
	ctx, cancel := context.WithTimeout(x.p.publishCtx, deathsTimeout)
	defer cancel()
	return x.p.w.deps.StageMemory.Put(ctx, x.scope, x.step, []byte(strconv.Itoa(deaths)))
}

// write is put for a count that may get lost.
func (x *trial) write(deaths int) {
	if err := x.put(deaths); err != nil {
		x.p.w.log.Warn("count of crashes not written", "operation_id", x.scope.OperationID, "step", x.step, "err", err)
	}
}

// quarantine returns the result of a command that is not executed.
func (p *pool) quarantine(t *taken) Result {
	now := p.w.now()
	p.w.metrics.ignored[ignoredQuarantined].Inc()
	p.w.log.Error("command quarantined: it has ended its worker too often", append(t.logArgs(), "deaths", maxDeaths)...)
	return Result{
		Outcome: event.OutcomeRetry, RetryAfter: quarantineDelay,
		Error: &event.Error{
			Component: ComponentKEB, Reason: ReasonQuarantined,
			Message: fmt.Sprintf("the worker %s has died %d times while it executed this step", p.w.cfg.Name, maxDeaths),
		},
		Result: event.Result{
			OperationID: t.command.Operation.ID, Cursor: t.command.Cursor, Stage: t.command.Stage, Step: t.command.Step,
			Worker: event.Worker{Name: p.w.cfg.Name, Version: p.w.cfg.Version}, StartedAt: now, FinishedAt: now,
		},
	}
}
