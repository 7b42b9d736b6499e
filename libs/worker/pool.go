package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
)

const (
	// unknownDelay is the redelivery delay of a command for a step that this process does not have. A
	// replica with another version may have it.
	unknownDelay = time.Second
	// slotPatience is how long commands wait for a slot before they are returned to the bus for other replicas.
	slotPatience = time.Second
	// busyDelay is the redelivery delay of a command that found no free slot.
	busyDelay = time.Second
	// stopGrace is the time limit for steps to return after their context has ended because the worker stops.
	stopGrace = 2 * time.Second
	// overdueGrace is the time limit for a step to return after the ExecuteBefore of its command. After that it is abandoned.
	overdueGrace = 3 * time.Second
	// overdueDelay is the redelivery delay of a command whose earlier dispatch still runs in this process after its limit.
	overdueDelay = time.Second
	// resultQueue is the maximum number of results that wait for publication. When it is full, finished steps wait and keep
	// their slots.
	resultQueue = 1024
	publishers  = 2
	// maxUnknown is the maximum number of unknown step names that are recorded in order to log each once.
	maxUnknown = 100
)

// pool is the state of one Run of a worker: its commands that are not yet acknowledged.
type pool struct {
	w *Worker
	// stepsCtx is the context of steps. It outlives the context of Run until the end of the drain.
	stepsCtx  context.Context
	stopSteps context.CancelCauseFunc
	// publishCtx never ends; each publish has its own deadline.
	publishCtx context.Context

	slots   chan struct{}
	results chan finished
	// closed reports that results are no longer read.
	closed  chan struct{}
	steps   sync.WaitGroup
	helpers sync.WaitGroup

	mu      sync.Mutex
	taken   map[string]*taken
	unknown map[string]bool
	// isolated is the last command that ran alone among its kind, see isolate.
	isolated *taken
	// unchecked limits the log messages about unanswered questions.
	unchecked rate.Sometimes
}

// taken is a command between its delivery and its acknowledgement.
type taken struct {
	// id is equal for all dispatches of a command.
	id       string
	delivery *bus.Delivery
	command  event.StepExecute
	step     Step
	since    time.Time

	// The fields below are protected by the mutex of the pool.

	// cancel ends the context of the step; nil before the step has begun and after it has returned.
	cancel context.CancelCauseFunc
	// executeBefore is that of the command, or later if it was extended. overdue is the timer that abandons the step.
	executeBefore time.Time
	overdue       *time.Timer
	// left means that the command no longer holds a slot. It is abandoned if its step has not returned.
	left bool
	// trial is set while the step of a command runs that came again.
	trial *trial
}

func (t *taken) dispatchID() string {
	return event.DispatchID(t.command.Operation.ID, t.command.Cursor, t.command.Dispatch)
}

func (w *Worker) startPool(ctx context.Context) *pool {
	base := context.WithoutCancel(ctx)
	p := &pool{
		w: w, publishCtx: base,
		slots: make(chan struct{}, w.cfg.Concurrency), results: make(chan finished, resultQueue),
		closed: make(chan struct{}), taken: map[string]*taken{}, unknown: map[string]bool{},
		unchecked: rate.Sometimes{Interval: uncheckedLog},
	}
	p.stepsCtx, p.stopSteps = context.WithCancelCause(base)
	for range publishers {
		p.helpers.Go(p.publish)
	}
	p.helpers.Go(p.heartbeat)
	return p
}

// accept takes a batch of commands and assigns each a free slot. It blocks while there is none, so that the bus keeps
// the rest for other replicas, but only for slotPatience, so that other replicas can take them. Commands without a slot in time are returned to the bus. The question about redelivered commands
// uses the same time.
func (p *pool) accept(ctx context.Context, batch []*bus.Delivery) {
	admitted := make([]*taken, 0, len(batch))
	for _, d := range batch {
		if t := p.admit(ctx, d); t != nil {
			admitted = append(admitted, t)
		}
	}
	if len(admitted) == 0 {
		return
	}
	limit := min(p.w.slotPatience, p.w.spec.AckWait/5)
	patience := time.NewTimer(limit)
	defer patience.Stop()
	admitted = p.current(ctx, limit, admitted)
	for i, t := range admitted {
		if ctx.Err() != nil {
			p.giveBackStopped(admitted[i:])
			return
		}
		if !p.slot(ctx, patience.C) {
			if ctx.Err() != nil {
				p.giveBackStopped(admitted[i:])
				return
			}
			for _, t := range admitted[i:] {
				p.giveBack(t, busyDelay)
			}
			return
		}
		p.steps.Add(1)
		go p.run(ctx, t) // leave is its end for p.steps
	}
}

// slot takes a slot, and waits for one until ctx or patience is over. It takes a free slot even then, because on a busy
// machine the question may have used up the time.
func (p *pool) slot(ctx context.Context, patience <-chan time.Time) bool {
	select {
	case p.slots <- struct{}{}:
		return true
	default:
	}
	select {
	case p.slots <- struct{}{}:
		return true
	case <-ctx.Done():
	case <-patience:
	}
	return false
}

// admit validates a command. It settles a command that must not be executed, and returns nil for it.
func (p *pool) admit(ctx context.Context, d *bus.Delivery) *taken {
	command, err := readCommand(d)
	if err != nil {
		p.w.metrics.ignored[ignoredUnreadable].Inc()
		p.w.log.Error("command is unreadable", "event_id", d.Event.ID(), "err", err)
		if err := d.Dead(ctx, err.Error()); err != nil {
			p.w.log.Error("command not moved to dead letters", "event_id", d.Event.ID(), "err", err)
		}
		return nil
	}
	t := &taken{
		id: event.CommandID(command.Operation.ID, command.Cursor), delivery: d, command: command,
		step: p.w.steps[command.Step], since: time.Now(), executeBefore: command.ExecuteBefore,
	}
	if t.step == nil {
		p.logUnknown(t)
		p.w.metrics.ignored[ignoredUnknown].Inc()
		p.settle(t, d.Nak(unknownDelay))
		return nil
	}
	// A command that was delivered before may have been extended: current decides.
	if !t.again() && p.dropLate(t) {
		return nil
	}
	p.mu.Lock()
	other, running := p.taken[t.id]
	overdue := running && !p.w.now().Before(other.executeBefore)
	if !running {
		p.taken[t.id] = t
	}
	p.mu.Unlock()
	if !running {
		return t
	}
	if overdue && p.dropLate(t) {
		return nil
	}
	if overdue {
		// The step should have returned. This process does not execute the command a second time beside it, but another replica may.
		p.w.metrics.ignored[ignoredOverdue].Inc()
		p.settle(t, d.Nak(overdueDelay))
		return nil
	}
	p.w.metrics.ignored[ignoredDuplicate].Inc()
	// A redelivery of the same message stays open: the acknowledgement of the running one settles both, and without it the message
	// is redelivered. A new dispatch is a separate message, for which the result of the running command is sufficient.
	if other.dispatchID() != t.dispatchID() {
		p.settle(t, d.Ack())
	}
	return nil
}

func readCommand(d *bus.Delivery) (event.StepExecute, error) {
	if t := d.Event.Type(); t != string(event.TypeStepExecute) {
		return event.StepExecute{}, fmt.Errorf("type %q: want %q", t, event.TypeStepExecute)
	}
	return bus.Data[event.StepExecute](d.Event)
}

// dropLate drops a command after its deadline. The orchestrator sends it again if it is still current.
func (p *pool) dropLate(t *taken) bool {
	if p.isInTime(t) {
		return false
	}
	p.w.metrics.ignored[ignoredLate].Inc()
	p.w.log.Debug("late command dropped", t.logArgs()...)
	p.settle(t, t.delivery.Ack())
	return true
}

// isInTime reports whether the time limit of a command has not passed.
func (p *pool) isInTime(t *taken) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.w.now().Before(t.executeBefore)
}

func (p *pool) logUnknown(t *taken) {
	p.mu.Lock()
	told := p.unknown[t.command.Step] || len(p.unknown) >= maxUnknown
	if !told {
		p.unknown[t.command.Step] = true
	}
	p.mu.Unlock()
	if !told {
		p.w.log.Warn("command for a step that this worker does not have", t.logArgs()...)
	}
}

// giveBack returns an unexecuted command to the bus, for redelivery after a delay.
func (p *pool) giveBack(t *taken, after time.Duration) {
	p.forget(t)
	p.settle(t, t.delivery.Nak(after))
}

// giveBackStopped returns commands because the worker stops.
func (p *pool) giveBackStopped(commands []*taken) {
	for _, t := range commands {
		p.spare(t)
		p.giveBack(t, 0)
	}
}

func (p *pool) forget(t *taken) {
	p.mu.Lock()
	delete(p.taken, t.id)
	p.mu.Unlock()
}

// settle logs the error of an acknowledgement. The command is then redelivered after its AckWait.
func (p *pool) settle(t *taken, err error) {
	if err != nil {
		p.w.log.Warn("command not settled", append(t.logArgs(), "err", err)...)
	}
}

// heartbeat reports long-running commands to the bus as in progress until their deadline, with one timer for all of them.
func (p *pool) heartbeat() {
	every := p.w.spec.ProgressEvery()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-p.closed:
			return
		case <-ticker.C:
		}
		for _, t := range p.olderThan(every) {
			if p.isInTime(t) {
				p.settle(t, t.delivery.InProgress())
			}
		}
	}
}

func (p *pool) olderThan(age time.Duration) []*taken {
	p.mu.Lock()
	defer p.mu.Unlock()
	var old []*taken
	for _, t := range p.taken {
		// Half the interval, because a slightly younger command would otherwise be reported only at almost twice the age.
		if time.Since(t.since) > age/2 {
			old = append(old, t)
		}
	}
	return old
}

// commands returns the event ids of the commands in execution or awaiting publication of their results.
func (p *pool) commands() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make([]string, 0, len(p.taken))
	for id, t := range p.taken {
		if t.cancel == nil || !t.left { // it is not abandoned
			ids = append(ids, id)
		}
	}
	return ids
}

// drain waits for running steps, ends their context after a timeout, and publishes their results.
func (p *pool) drain(timeout time.Duration) error {
	idle := make(chan struct{})
	// It outlives drain only if a step does not stop, which the error then names.
	go func() {
		p.steps.Wait()
		close(idle)
	}()
	if !waitFor(idle, timeout) {
		p.stopSteps(ErrStopping)
		waitFor(idle, stopGrace)
	}
	var err error
	if steps := p.stillRunning(); steps != "" {
		err = fmt.Errorf("worker %s: steps did not stop when their context ended: %s", p.w.cfg.Name, steps)
	}
	close(p.closed)
	p.helpers.Wait()
	p.stopSteps(ErrStopping)
	return err
}

func waitFor(done <-chan struct{}, timeout time.Duration) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

func (p *pool) stillRunning() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := map[string]bool{}
	for _, t := range p.taken {
		if t.cancel != nil {
			names[t.command.Step] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}

func (t *taken) logArgs() []any {
	return []any{
		"operation_id", t.command.Operation.ID, "instance_id", t.command.Operation.InstanceID,
		"stage", t.command.Stage, "step", t.command.Step, "attempt", t.command.StepAttempt,
		"event_id", t.dispatchID(),
	}
}
