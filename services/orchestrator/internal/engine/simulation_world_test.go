package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

type applyFunc func(*process.Process, engine.State, engine.Event, time.Time) (engine.State, engine.Effects, error)

// world is one instance with its operations and everything around the engine, all of it unreliable: the bus, two
// orchestrators on one database, the workers, the operator and the clock.
type world struct {
	rng   *rand.Rand
	apply applyFunc
	now   time.Time
	log   []string
	// traced tells that the steps of the schedule are written down; a schedule is run again for that once it has failed.
	traced bool

	operations []*operation
	instance   instance

	seq               int
	commands, results []message
	taken             map[messageID]bool // the duplicate window of the bus
	absent            bool               // no worker lives
	calm              bool               // nothing goes wrong any more
	shells            [2]shell
}

// operation is a durable row, with the model of what it must look like.
type operation struct {
	p       *process.Process
	state   engine.State
	version int
	model   *model
}

// instance is what the operations of an instance leave to each other.
type instance struct {
	details   json.RawMessage
	saved     []string // the members that details must have
	completed []string
}

type messageID struct {
	operation int
	cursor    int64
	dispatch  int
	result    bool
}

type message struct {
	seq       int
	id        messageID
	operation int
	worker    string
	command   event.StepExecute
	result    engine.Result
}

type phase int

const (
	idle phase = iota
	decided
	committed
	published
)

// shell is one orchestrator that folds a result: read, decide, commit, publish, acknowledge. It may crash in between.
type shell struct {
	phase     phase
	message   message
	fresh     bool
	read      row
	next      engine.State
	effects   engine.Effects
	republish bool
	at        time.Time // of the decision
	cache     [3]row
}

type row struct {
	state   engine.State
	version int
	known   bool
}

// violation is what an invariant panics with.
type violation string

func (w *world) violate(format string, args ...any) { panic(violation(fmt.Sprintf(format, args...))) }

func (w *world) trace(format string, args ...any) {
	if w.traced {
		w.log = append(w.log, w.now.Sub(epoch).String()+" "+fmt.Sprintf(format, args...))
	}
}

func (w *world) one(in int) bool { return w.rng.IntN(in) == 0 }

// request adds an operation to the instance; a deprovisioning cancels a provisioning.
func (w *world) request(p *process.Process, plan string) {
	n := len(w.operations)
	w.trace("operation %d is requested: %s", n, p.Operation)
	if p.Operation == event.Deprovision {
		for i, op := range w.operations {
			if op.p.Operation == event.Provision && !op.state.Status.Final() {
				w.act(i, engine.Cancel{Reason: "preempted"})
			}
		}
	}
	w.operations = append(w.operations, &operation{p: p, model: newModel(), state: engine.New(event.Operation{
		ID: operationID, Type: p.Operation, InstanceID: "i-1", Plan: event.Plan{ID: plan, Name: plan},
	})})
}

// admit starts the first pending operation if the instance is free.
func (w *world) admit() {
	first := -1
	for i, op := range w.operations {
		if op.state.Status == event.InProgress {
			return
		}
		if op.state.Status == event.Pending && first < 0 {
			first = i
		}
	}
	if first < 0 {
		return
	}
	op := w.operations[first]
	start := engine.Start{Details: w.instance.details}
	if op.p.Operation == event.Deprovision {
		start.Completed = w.instance.completed
	}
	op.model.saved = append([]string(nil), w.instance.saved...)
	w.act(first, start)
}

// act applies an event to the row while it is locked, and publishes what follows unless the orchestrator crashes first.
func (w *world) act(n int, e engine.Event) bool {
	op := w.operations[n]
	next, effects, err := w.apply(op.p, op.state, e, w.now)
	w.trace("operation %d: %+v: %v", n, e, err)
	if err != nil {
		if !errors.Is(err, engine.ErrNotPossible) {
			w.violate("%T: %v", e, err)
		}
		return false
	}
	w.commit(n, e, next, effects, w.now)
	if effects.Dispatch && (w.calm || !w.one(5)) {
		w.publish(n, &next)
	}
	return true
}

// commit makes a transition durable that was decided at some time, and holds it against the invariants.
func (w *world) commit(n int, e engine.Event, next engine.State, effects engine.Effects, at time.Time) {
	op := w.operations[n]
	before := op.state
	op.state = next
	op.version++
	w.trace("operation %d is %s at %d/%d, cursor %d", n, next.Status, next.Stage, next.Step, next.Cursor)
	w.check(op, &before, e, &next, &effects, at)
	if before.Status == event.InProgress && next.Status.Final() {
		w.instance = instance{details: next.Details, saved: op.model.saved}
		if op.p.Operation == event.Deprovision {
			if next.Status == event.Succeeded && len(next.NotCompleted) == 0 {
				w.instance = instance{}
			} else {
				w.instance.completed = next.CompletedSteps(op.p)
			}
		}
	}
}

// publish puts the command of a state on the bus, which drops what it has seen under the same id.
func (w *world) publish(n int, s *engine.State) {
	op := w.operations[n]
	worker, command := engine.Command(op.p, s)
	w.checkCommand(op, worker, &command)
	w.put(&w.commands, message{
		id: messageID{operation: n, cursor: command.Cursor, dispatch: command.Dispatch}, operation: n, worker: worker, command: command,
	})
}

func (w *world) put(queue *[]message, m message) {
	if w.taken[m.id] {
		return
	}
	w.taken[m.id] = true
	w.seq++
	m.seq = w.seq
	*queue = append(*queue, m)
	if !w.calm && w.one(12) {
		w.seq++
		m.seq = w.seq
		*queue = append(*queue, m)
	}
}

func (w *world) pick(queue []message) message { return queue[w.rng.IntN(len(queue))] }

func remove(queue *[]message, seq int) {
	for i := range *queue {
		if (*queue)[i].seq == seq {
			*queue = append((*queue)[:i], (*queue)[i+1:]...)
			return
		}
	}
}

// work lets a worker execute a command. It may crash before the result is out, or before the command is acknowledged.
func (w *world) work() {
	if w.absent || len(w.commands) == 0 {
		return
	}
	m := w.pick(w.commands)
	if !w.now.Before(m.command.ExecuteBefore) {
		w.trace("the command of cursor %d is late", m.command.Cursor)
		remove(&w.commands, m.seq)
		return
	}
	if !w.calm && w.one(12) {
		w.trace("the worker crashes before its result is out")
		return
	}
	r := w.outcome(&m)
	w.trace("operation %d: cursor %d: %s %s after %s", m.operation, r.Cursor, m.command.Step, r.Outcome, r.RetryAfter)
	id := m.id
	id.result = true
	w.put(&w.results, message{id: id, operation: m.operation, result: r})
	if w.calm || !w.one(10) {
		remove(&w.commands, m.seq)
	}
}

var retryAfter = []time.Duration{0, time.Second, 30 * time.Second, 2 * time.Minute, 2 * time.Hour}

func (w *world) outcome(m *message) engine.Result {
	r := engine.Result{Cursor: m.command.Cursor, Outcome: event.OutcomeSucceeded, StartedAt: w.now, FinishedAt: w.now}
	if w.one(3) {
		r.Details = json.RawMessage(fmt.Sprintf(`{"o%dc%dd%d":1}`, m.operation, r.Cursor, m.id.dispatch))
	}
	r.StageMemory = w.one(4)
	if w.calm {
		return r
	}
	switch n := w.rng.IntN(100); {
	case n < 55:
	case n < 78:
		r.Outcome, r.RetryAfter = event.OutcomeRetry, retryAfter[w.rng.IntN(len(retryAfter))]
		if w.one(2) {
			r.Error = &event.Error{Component: "ext", Reason: "down", Message: "not yet"}
		}
	case n < 84:
		r.Outcome, r.Error = event.OutcomeFailed, &event.Error{Component: "ext", Reason: "broken", Message: "it broke"}
	case n < 88:
		r.Outcome = event.OutcomeSkipped
	case n < 92:
		r.Outcome, r.Error = event.OutcomeNotCompleted, &event.Error{Component: "ext", Reason: "gone", Message: "gave up"}
	default:
		r.Outcome = event.OutcomeStageLost
	}
	return r
}

// fold takes an orchestrator one phase further.
func (w *world) fold(i int) {
	s := &w.shells[i]
	if !w.calm && s.phase != idle && w.one(12) {
		w.trace("orchestrator %d crashes", i)
		*s = shell{}
		return
	}
	switch s.phase {
	case idle:
		if len(w.results) == 0 {
			return
		}
		s.message = w.pick(w.results)
		s.read, s.fresh = s.cache[s.message.operation], false
		if !s.read.known || w.one(4) {
			w.read(s)
		}
		w.decide(s)
	case decided:
		w.write(i, s)
	case committed:
		if (s.effects.Dispatch || s.republish) && s.next.InFlight() {
			w.publish(s.message.operation, &s.next)
		}
		s.phase = published
	case published:
		remove(&w.results, s.message.seq)
		s.phase = idle
	}
}

func (w *world) read(s *shell) {
	op := w.operations[s.message.operation]
	s.read, s.fresh = row{state: op.state, version: op.version, known: true}, true
}

func (w *world) decide(s *shell) {
	op := w.operations[s.message.operation]
	next, effects, err := w.apply(op.p, s.read.state, s.message.result, w.now)
	if errors.Is(err, engine.ErrStale) && !s.fresh {
		w.read(s)
		next, effects, err = w.apply(op.p, s.read.state, s.message.result, w.now)
	}
	if err != nil && !errors.Is(err, engine.ErrStale) {
		w.violate("a result is refused: %v", err)
	}
	s.next, s.effects, s.republish, s.phase, s.at = next, effects, err != nil, decided, w.now
}

func (w *world) write(i int, s *shell) {
	n := s.message.operation
	op := w.operations[n]
	switch {
	case s.republish:
		w.trace("orchestrator %d: operation %d: the result of cursor %d is stale at %d", i, n, s.message.result.Cursor, s.next.Cursor)
	case op.version != s.read.version:
		w.trace("orchestrator %d: operation %d: conflict", i, n)
		w.read(s)
		w.decide(s)
		return
	default:
		w.trace("orchestrator %d: operation %d: the result of cursor %d counts", i, n, s.message.result.Cursor)
		w.commit(n, s.message.result, s.next, s.effects, s.at)
		s.read = row{state: s.next, version: op.version}
	}
	s.read.known = s.read.state.InFlight()
	s.cache[n] = s.read
	s.phase = committed
}

// sweep takes up what is due, as the timer finds it in the database.
func (w *world) sweep() {
	for i, op := range w.operations {
		due := op.state.Waiting() && !w.now.Before(op.state.DueAt) || op.state.InFlight() && !w.now.Before(op.state.ExecuteBefore)
		if due && !w.act(i, engine.Due{WorkerAlive: !w.absent}) {
			w.violate("operation %d is due and refuses: %+v", i, op.state)
		}
	}
}

// timer is the earliest time that an operation waits for; zero when there is none.
func (w *world) timer() time.Time {
	var at time.Time
	for _, op := range w.operations {
		for _, t := range []time.Time{op.state.DueAt, op.state.ExecuteBefore} {
			if !t.IsZero() && (at.IsZero() || t.Before(at)) {
				at = t
			}
		}
	}
	return at
}
