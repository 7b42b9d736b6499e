package simulation_test

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/dispatch"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/liveness"
	"github.com/kyma-project/keb/services/orchestrator/internal/recovery"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
	"github.com/kyma-project/keb/services/orchestrator/internal/timer"
)

// orchestrator is a process: the production code with its own clock. Its tasks are interleaved.
type orchestrator struct {
	w        *world
	skew     time.Duration
	dispatch *dispatch.Dispatcher
	timer    *timer.Timer
	recovery *recovery.Recovery
	tasks    [taskKinds]task
	rows     [maxOperations]*store.Row // the rows as first read, for a planted bug
	known    []pause                   // the holds as last read
	bounds   bounds                    // the limits as last read
	// nextGrant is when a rate has room.
	nextGrant time.Time
}

type taskKind int

const (
	taskResults  taskKind = iota // two handlers apply results
	taskResults2                 //
	taskRequests                 // accepts requests
	taskTimer                    // checks for losses and sweeps
	taskGrants                   // grants commands that wait for limits
	taskAction                   // carries out an action of an operator
	taskSignal                   // stores and delivers an event from outside
	taskKinds
)

var taskOf = [16]taskKind{
	taskResults, taskResults, taskResults, taskResults, taskResults, taskResults2, taskResults2, taskResults2,
	taskRequests, taskRequests, taskTimer, taskTimer, taskTimer, taskGrants, taskGrants, taskAction,
}

// call is a call of the database or the bus by a task. Between two calls other events can happen.
type call int

const (
	callLoad call = iota
	callWrite
	callTransaction
	callPublish
	callFacts
	callNote
	callAcknowledge
	callSignals
	callRange
	calls
	callNone = calls // the task has ended
)

var callNames = [calls]string{"load", "write", "transaction", "publish", "publish facts", "note facts", "acknowledge", "store events", "read streams"}

// fault is the fault of a call.
type fault uint16

const (
	faultNone   fault = iota
	faultFails        // the call is not executed
	faultSilent       // the call is executed, but its answer is lost
	faultLiar         // the liveness of workers is wrong
)

// thread runs tasks sequentially and stops before each call. It is a coroutine, so there is no concurrency.
type thread struct {
	next   func() (call, bool)
	stop   func()
	yield  func(call) bool
	run    func()
	killed bool
}

// threads holds the idle threads of a runner. They are reused, because growing the stack of a new one is expensive.
type threads struct{ idle []*thread }

// take returns a thread that starts run with its next step.
func (p *threads) take(run func()) *thread {
	if n := len(p.idle); n > 0 {
		h := p.idle[n-1]
		p.idle = p.idle[:n-1]
		h.run, h.killed = run, false
		return h
	}
	h := &thread{run: run}
	h.next, h.stop = iter.Pull(func(yield func(call) bool) {
		h.yield = yield
		for alive := true; alive; alive = yield(callNone) {
			h.once()
		}
	})
	return h
}

// once runs a task until it ends or is killed.
func (h *thread) once() {
	defer func() {
		if reason := recover(); reason != nil && reason != (killed{}) {
			panic(reason)
		}
	}()
	h.run()
}

// step runs the task up to its next call; it returns false if the task has ended.
func (p *threads) step(h *thread) (call, bool) {
	at, _ := h.next() // a thread panics on a violation, and is not reused
	if at == callNone {
		p.idle = append(p.idle, h)
	}
	return at, at != callNone
}

// kill ends a task before its next call.
func (p *threads) kill(h *thread) {
	h.killed = true
	p.step(h)
}

// close ends all threads.
func (p *threads) close() {
	for _, h := range p.idle {
		h.stop()
	}
}

// task is the work of one goroutine of an orchestrator.
type task struct {
	kind   taskKind
	thread *thread // nil when it is idle
	at     call

	batch    []*message
	decided  map[int][]transition // unwritten decisions of the engine
	owes     map[int]int64        // the cursors of commands that must be on the bus before the messages are acknowledged
	written  map[int]bool         // operations that this task has changed
	freed    []freed
	withheld map[int]bool // operations that a hold has kept from starting or from sending a command
	faulted  bool         // a call failed, so the sweep may have to start waiting operations
	starting bool         // publishes again after a start
	begun    bool
	known    int // the number of events that were stored when the task started
	process  *orchestrator
	acks     int
	ackFault fault
}

// freed is an instance freed by an operation, with the commit.
type freed struct{ instance, starts, commit int }

// transition is one step of the engine.
type transition struct {
	event   engine.Event
	next    engine.State
	effects engine.Effects
	at      time.Time
	bounds  bounds
}

// killed unwinds a task of a killed process.
type killed struct{}

func (t *task) working() bool { return t.thread != nil }

// boot starts an orchestrator.
func (o *orchestrator) boot() {
	w := o.w
	now := func() time.Time { return w.clock(o) }
	silent := slog.New(slog.DiscardHandler)
	o.known = w.holds
	var err error
	o.timer = timer.New(timer.Config{Every: time.Second}, w.db, now, silent)
	o.dispatch, err = dispatch.New(dispatch.Config{FoldAfter: 1}, dispatch.Deps{
		Store: w.db, Publisher: w, Definitions: w, Workers: w, Purger: w, Metrics: w.metrics, Log: silent, Now: now,
		Holds: o, Limits: o, Backlog: w, Apply: w.decide, Wake: func(time.Time) {},
	})
	if err != nil {
		panic(err)
	}
	o.read()
	o.recovery = recovery.New(recovery.Config{Every: time.Second, Timeout: time.Second, WorkerTimeout: 10 * time.Second},
		recovery.Deps{Bus: streams{w}, Workers: w, Dispatcher: starter{o.dispatch, o}, Now: now, Log: silent})
}

// access stops the task before a call, and returns the fault of the call.
func (w *world) access(c call) fault {
	t := w.current
	if t == nil {
		return faultNone
	}
	if !t.thread.yield(c) || t.thread.killed {
		panic(killed{})
	}
	if c == callTransaction {
		clear(t.decided)
	}
	if w.fault == faultFails || w.fault == faultSilent {
		t.faulted = true
		counted := [calls][2]counted{
			callPublish: {countPublishFailed, countPublishUnknown}, callFacts: {countPublishFailed, countPublishUnknown},
			callLoad: {countCommitFailed, countCommitFailed}, callWrite: {countCommitFailed, countCommitUnknown},
			callTransaction: {countCommitFailed, countCommitUnknown}, callNote: {countCommitFailed, countCommitUnknown},
			callAcknowledge: {countNotAcked, countNotAcked}, callSignals: {countCommitFailed, countCommitUnknown}, callRange: {countRangeFailed, countRangeFailed},
		}
		w.count(counted[c][w.fault-faultFails])
	}
	return w.fault
}

// step runs a task up to its next call.
func (w *world) step(o *orchestrator, t *task, c choice) {
	if !t.working() && !w.start(o, t, c) {
		return
	}
	w.current, w.fault = t, fault(c.c%4)
	if w.traced && t.begun {
		w.trace("orchestrator %d, task %d: %s%s", w.index(o), t.kind, callNames[t.at], []string{"", ": fails", ": no answer", ": is misled"}[c.c%4])
	}
	t.begun = true
	at, more := w.threads.step(t.thread)
	w.current = nil
	if t.at = at; !more {
		*t = task{kind: t.kind, process: t.process, batch: t.batch[:0]}
	}
}

func (w *world) index(o *orchestrator) int {
	if o == &w.orchestrators[0] {
		return 0
	}
	return 1
}

// start gives work to an idle task.
func (w *world) start(o *orchestrator, t *task, c choice) bool {
	for i := range o.tasks {
		o.tasks[i].kind, o.tasks[i].process = taskKind(i), o
	}
	n := 1 + int(c.d%3)
	switch t.kind {
	case taskResults, taskResults2:
		if t.batch = w.take(t.batch[:0], w.results, int(c.b), n); len(t.batch) == 0 {
			return false
		}
		w.launch(t, func(ctx context.Context) {
			w.acknowledgeFirst(t, bugAckBeforeCommit)
			_ = o.dispatch.Results(ctx, w.deliveries(t))
		})
	case taskRequests:
		if t.batch = w.take(t.batch[:0], w.requests, int(c.b), n); len(t.batch) == 0 {
			return false
		}
		w.launch(t, func(ctx context.Context) {
			w.acknowledgeFirst(t, bugRequestAckedFirst)
			_ = o.dispatch.Requests(ctx, w.deliveries(t))
		})
	case taskTimer:
		w.launch(t, func(ctx context.Context) {
			o.recovery.Round(ctx)
			_ = o.timer.Sweep(ctx, o.dispatch)
			_ = o.dispatch.PublishFacts(ctx)
			_ = o.dispatch.FoldHistories(ctx)
		})
	case taskGrants:
		w.launch(t, func(ctx context.Context) { w.grants(ctx, o, t) })
	default:
		return false
	}
	return true
}

// launch prepares a task; the first step starts it.
func (w *world) launch(t *task, run func(ctx context.Context)) {
	t.decided, t.owes, t.written = map[int][]transition{}, map[int]int64{}, map[int]bool{}
	t.withheld, t.known = map[int]bool{}, len(w.db.signals)
	t.thread = w.threads.take(func() { run(context.Background()) })
}

// take delivers messages of a stream; they stay in the stream until they are acknowledged.
func (w *world) take(batch, queue []*message, from, n int) []*message {
	for i := range min(n, len(queue)) {
		batch = append(batch, queue[(from+i)%len(queue)])
	}
	if len(queue) > 0 && from%len(queue) > 0 {
		w.count(countReordered)
	}
	return batch
}

// decide calls engine.Apply and records its decision.
func (w *world) decide(p *process.Process, s engine.State, e engine.Event, now time.Time) (engine.State, engine.Effects, error) {
	next, effects, err := w.apply(p, s, e, now)
	n := numberOf(s.Operation.ID)
	op := w.byID[n]
	switch e := e.(type) {
	case engine.Start:
		if t := w.current; t != nil && t.process != nil && heldBy(t.process.known, &s.Operation, "", "") != "" {
			w.violate("operation %d starts inside a hold", n)
		}
	case engine.Cancel:
		if strings.HasPrefix(e.Reason, "preempted") {
			w.count(countPreempted)
		} else {
			w.checkAllowed(op, e, err)
		}
	case engine.Retry, engine.SkipStep, engine.Unsendable:
		w.checkAllowed(op, e, err)
	case engine.Result:
		if err != nil {
			w.count(countStale)
		}
	case engine.Due:
		if err == nil && !e.LostBefore.IsZero() {
			w.count(countLostAgain)
		}
	}
	if t := w.current; err == nil && effects.Changed {
		t.decided[n] = append(t.decided[n], transition{event: e, next: next, effects: effects, at: now, bounds: t.process.bounds})
	}
	return next, effects, err
}

// starter checks which commands a start must publish.
type starter struct {
	*dispatch.Dispatcher
	o *orchestrator
}

const (
	// republishWithin is the maximum age of a command that a start publishes, and clockSkew the maximum difference of clocks.
	republishWithin = 20 * time.Second
	clockSkew       = 5 * time.Second
)

// AfterStart implements recovery.Dispatcher. It checks that recent commands whose operations have not moved on are published.
func (s starter) AfterStart(ctx context.Context, keptSince time.Time, held dispatch.Held) (int, error) {
	w := s.o.w
	t := w.current
	type command struct {
		op      *operation
		version int
	}
	recent := func() (found []command) {
		now := w.clock(s.o)
		for _, op := range w.operations {
			state := &op.row.State
			if !state.InFlight() || !now.Before(state.ExecuteBefore) {
				continue
			}
			sent := state.SentAt
			if again := state.ExecuteBefore.Add(-state.Extended - op.p.Stages[state.Stage].Steps[state.Step].Execution); again.After(sent) {
				sent = again
			}
			if sent.After(now.Add(-republishWithin)) && !sent.After(now.Add(clockSkew)) && !sent.Before(keptSince) {
				found = append(found, command{op, op.row.Version})
			}
		}
		return found
	}
	before := recent()
	t.starting = true
	n, err := s.Dispatcher.AfterStart(ctx, keptSince, held)
	t.starting = false
	if err != nil {
		return n, err
	}
	after := recent() // time may have passed
	for _, c := range before {
		if slices.Contains(after, c) && !t.withheld[c.op.n] && !c.op.model.commands[c.op.row.AwaitedCursor()].out {
			w.violate("command %d is not on the bus after a start", c.op.row.Cursor)
		}
	}
	return n, nil
}

// streams implements recovery.Bus. Its calls never fail.
type streams struct{ *world }

func (w streams) Range(_ context.Context, name event.Stream) (bus.StreamRange, error) {
	return bus.StreamRange{Created: w.made[name], Last: uint64(w.seq)}, nil
}

func (w streams) MessageIDs(_ context.Context, name event.Stream) (map[string]bool, error) {
	queue := w.commands
	if name == event.StreamResults {
		queue = w.results
	}
	ids := map[string]bool{}
	for _, m := range queue {
		ids[m.id] = true
	}
	return ids, nil
}

// Taken implements recovery.Workers. A worker executes a command at once, so no worker holds one.
func (w *world) Taken(context.Context) (liveness.Taken, error) { return liveness.Taken{}, nil }

// Serves implements dispatch.Workers.
func (w *world) Serves(string, string) bool { return !w.absent != (w.fault == faultLiar) }

// ServesRamped implements dispatch.Workers.
func (w *world) ServesRamped(worker, step, _ string) bool { return w.Serves(worker, step) }

// Current implements dispatch.Definitions.
func (w *world) Current(t event.OperationType) *process.Process { return w.set[t] }

// Pinned implements dispatch.Definitions.
func (w *world) Pinned(_ context.Context, hash string) (*process.Process, error) {
	for _, p := range w.set {
		if p.Hash() == hash {
			return p, nil
		}
	}
	panic("there is no definition " + hash)
}

// Purge implements dispatch.MemoryPurger.
func (w *world) Purge(operationID, stage string) {
	op, n := w.byID[numberOf(operationID)], -1
	for i := range op.p.Stages {
		if op.p.Stages[i].Name == stage {
			n = i
		}
	}
	w.forget(op.n, n)
	w.count(countPurges)
}

// crash kills an orchestrator and starts it again without its memory and tasks.
func (w *world) crash(n int) {
	o := &w.orchestrators[n]
	interrupted := false
	for i := range o.tasks {
		if t := &o.tasks[i]; t.working() {
			interrupted = true
			w.counts.crashBefore[t.at]++
			w.threads.kill(t.thread)
		}
	}
	if interrupted {
		w.count(countCrashes)
	}
	w.trace("orchestrator %d crashes", n)
	*o = orchestrator{w: w, skew: o.skew}
	o.boot()
}

// close kills the running tasks.
func (w *world) close() {
	broken := w.current // its thread has ended with the violation
	for i := range w.orchestrators {
		for k := range w.orchestrators[i].tasks {
			if t := &w.orchestrators[i].tasks[k]; t.working() && t != broken {
				w.threads.kill(t.thread)
			}
		}
	}
}

var extensions = []time.Duration{time.Second, 2 * time.Minute, 20 * time.Minute, event.MaxExtension}

// checkExtend checks that more time moves the limit of the command, within the budget, and nothing else.
func (w *world) checkExtend(op *operation, before *engine.State, e engine.Event, next *engine.State, effects *engine.Effects, now time.Time) {
	x, ok := e.(engine.Extend)
	if !ok {
		if next.InFlight() && next.Extended > 0 && (next.AwaitedCursor() != before.AwaitedCursor() || next.Dispatch != before.Dispatch && before.Extended == 0) {
			w.violate("%T: a new command is extended by %s", e, next.Extended)
		}
		return
	}
	w.count(countExtended)
	end := before.Deadline
	if before.StandsAt() == before.Step { // otherwise the budget of the current step is not shown
		end = engine.Left(op.p, before).EndsAt
	}
	switch {
	case x.Cursor != before.AwaitedCursor() || !now.Before(before.ExecuteBefore) || before.CancelReason != "":
		w.violate("more time for cursor %d at %s: the command has cursor %d and the limit %s", x.Cursor, now, before.AwaitedCursor(), before.ExecuteBefore)
	case next.ExecuteBefore.Before(before.ExecuteBefore), next.ExecuteBefore.After(before.ExecuteBefore) && next.ExecuteBefore.After(end):
		w.violate("the limit moves from %s to %s, the budget ends at %s", before.ExecuteBefore, next.ExecuteBefore, end)
	case next.Extended-before.Extended != next.ExecuteBefore.Sub(before.ExecuteBefore):
		w.violate("the limit moves from %s to %s, extended by %s after %s", before.ExecuteBefore, next.ExecuteBefore, next.Extended, before.Extended)
	case effects.Dispatch || next.Dispatch != before.Dispatch:
		w.violate("the command is sent again because it has more time")
	}
}

// begin starts an action of an operator, or the permanent rejection of a command by the bus.
func (w *world) begin(c choice) {
	o := &w.orchestrators[c.a%orchestrators]
	t := &o.tasks[taskAction]
	if t.working() || len(w.operations) == 0 {
		return
	}
	op := w.operations[int(c.b)%len(w.operations)]
	var e engine.Event
	switch n := c.c % 16; {
	case n == 14: // its worker asks for more time
		e = engine.Extend{Cursor: op.row.AwaitedCursor() - int64(c.c>>4%16/15), For: extensions[int(c.c>>8)%len(extensions)]}
	case n == 15: // the bus cannot carry the current command
		e = engine.Unsendable{Cursor: op.row.Cursor, Reason: "too large"}
	case n%3 == 0:
		e = engine.Cancel{Reason: "not wanted"}
	case n%3 == 1:
		retry := engine.Retry{By: "me"}
		if c.c>>4&1 == 1 {
			stage := &op.p.Stages[int(c.c>>5)%len(op.p.Stages)]
			if retry.Stage = stage.Name; c.c>>10&1 == 1 {
				retry.Step = stage.Steps[int(c.c>>11)%len(stage.Steps)].Name
			}
		}
		e = retry
	default:
		step := "none"
		if at := op.row.Position(op.p); at != nil {
			step = at.Step
		}
		e = engine.SkipStep{Step: step, By: "me"}
	}
	t.kind, t.process = taskAction, o
	w.launch(t, func(ctx context.Context) {
		if err := o.dispatch.Act(ctx, op.row.Operation.ID, e); err != nil {
			w.count(countRefused)
			return
		}
		w.count(countActions)
		w.checkWoken(t)
	})
	w.step(o, t, choice{})
}
