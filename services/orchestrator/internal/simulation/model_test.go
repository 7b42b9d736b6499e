package simulation_test

import (
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// model is the expected state of an operation, derived from its events and not from the state of the engine.
type model struct {
	stage, step  int
	restart      bool           // the stage is repeated when the operation continues
	fresh        bool           // no command was sent since the stage has started
	attempt      map[int]int    // the last attempt of each stage
	tries        map[string]try // of the steps of this stage that have not succeeded since
	notCompleted map[string]bool
	skipped      map[string]bool // by an operator, in this stage
	succeeded    map[string]bool // of finished stages
	saved        []string        // members that the details must have
	counted      map[int64]bool
	commands     map[int64]*sent
	memory       bool     // a step of this stage attempt has used the stage memory
	remembers    bool     // a step of any attempt of this stage has
	done         []string // steps of this stage attempt that have succeeded
	cancel       bool
	// condition describes the last try of the step conditionOf.
	condition      engine.Condition
	conditionOf    string
	conditionSince time.Time
	deadline       time.Time
	// ending means that the finally stage runs, and stoodAt is the stage before it.
	ending  bool
	stoodAt int
	// key is the key of the event that the last try waits for, events are the ids of the events of steps, and delivered those of all events.
	key       string
	events    map[string]string
	delivered map[string]bool
	// heldSince is the time of the last hold.
	heldSince time.Time
	// limitedSince is the time since which the command waits for limits, and overtaken counts the commands of other global accounts that were
	// sent from its queue meanwhile. roomSeen counts the rounds in which its limits had room.
	limitedSince        time.Time
	overtaken, roomSeen int
	// countedUnder is the version of the limits in which the command counts, -1 for none, since the commit countedAt.
	countedUnder int64
	countedAt    int
	started      int
	retried      int
	ends         int
}

type try struct {
	first    time.Time
	attempts int
	// waiting is the time of the first try of a step with a wait that ended without an error, and failing of the first error since then.
	waiting, failing time.Time
	failures         int // in a row
}

// backOff counts the failures of a step in a row, and returns the shortest and longest time to the next try after the last one.
func (m *model) backOff(step *process.Step, failed bool) (shortest, longest time.Duration) {
	t := m.tries[step.Name]
	t.failures++
	if !failed {
		t.failures = 0
	}
	m.tries[step.Name] = t
	after := step.Retry.Every
	for n := 1; n < t.failures && step.Retry.Factor > 1; n++ {
		after = min(step.Retry.Max, time.Duration(float64(after)*step.Retry.Factor))
	}
	part := time.Duration(float64(after) * step.Retry.Jitter)
	return after - part, after + part
}

// budget returns the time to the next try and the time of the last try for an outcome retry; a zero end means no limit.
// begun is the time from which the try counts, if it is not the first one.
func (w *world) budget(m *model, step *process.Step, r *engine.Result, begun time.Time) (every time.Duration, end time.Time) {
	t := m.tries[step.Name]
	timeout, since := step.Retry.Timeout, t.first
	every = step.Retry.Every
	if step.Wait != (process.Wait{}) {
		begins := begun
		if t.attempts == 1 {
			begins = t.first
		}
		if r.Error == nil {
			if t.waiting.IsZero() {
				t.waiting = begins
			}
			if !t.failing.IsZero() {
				w.count(countRetryBudgetReset)
			}
			t.failing = time.Time{}
			every, timeout, since = step.Wait.Every, step.Wait.Timeout, t.waiting
		} else {
			if t.failing.IsZero() {
				t.failing = begins
			}
			since = t.failing
		}
		m.tries[step.Name] = t
	}
	if timeout == 0 {
		return every, time.Time{}
	}
	return every, since.Add(timeout)
}

// sent is a committed command, and its state on the bus.
type sent struct {
	at       event.Position
	dispatch int
	// committed is the time of the last decision to send it, and out means that it was published since then.
	committed time.Time
	out       bool
}

func (m *model) reset() {
	*m = model{
		fresh: true, attempt: emptied(m.attempt), tries: emptied(m.tries), notCompleted: emptied(m.notCompleted),
		skipped:   emptied(m.skipped),
		succeeded: emptied(m.succeeded), counted: emptied(m.counted), commands: emptied(m.commands), done: m.done[:0],
		events: emptied(m.events), delivered: emptied(m.delivered),
	}
}

// emptied clears a map for reuse, or returns a new one.
func emptied[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	clear(m)
	return m
}

// check checks the invariants of one committed transition.
func (w *world) check(op *operation, before *engine.State, e engine.Event, next *engine.State, effects *engine.Effects, at time.Time, known bounds) {
	if !effects.Changed {
		w.violate("%T: a transition without Changed", e)
	}
	w.checkCursor(before, e, next, effects)
	op.model.before(op.p, before, e, at)
	w.checkResult(op, before, e, next, effects, at)
	w.checkDue(op, before, e, next, effects, at)
	w.checkExtend(op, before, e, next, effects, at)
	left := op.model.remembers
	for i := range effects.History {
		w.checkEntry(op, before, e, &effects.History[i], at)
	}
	w.checkEnding(op, before, e, next, at)
	w.checkShape(op, before, e, next, effects)
	w.checkCondition(op, before, e, next, effects, at)
	w.checkSignal(op, before, e, next, effects)
	w.checkHold(op, before, e, next, at)
	w.checkLimit(op, before, e, next, effects, at, known)
	w.checkState(op, before, next, effects, at)
	w.checkShown(op, next)
	w.checkStages(op, before, next, effects, left)
	if effects.Dispatch && next.InFlight() {
		c := op.model.commands[next.AwaitedCursor()]
		c.committed, c.out = at, false
	}
}

func (w *world) checkCursor(before *engine.State, e engine.Event, next *engine.State, effects *engine.Effects) {
	grows := true
	switch e.(type) {
	case engine.Hold, engine.Release, engine.Park, engine.Grant, engine.Extend:
		grows = false
	case engine.Cancel:
		grows = !before.InFlight() || next.Status.Final() || next.Ending != nil && before.Ending == nil // otherwise the command in flight stays
	case engine.Due:
		grows = !before.InFlight() || len(effects.History) > 0 // checkDue checks when an entry is due
	}
	if grows && next.Cursor <= before.Cursor || !grows && next.Cursor != before.Cursor {
		w.violate("%T: cursor %d after %d", e, next.Cursor, before.Cursor)
	}
	cursor := before.Cursor
	for i := range effects.History {
		if got := effects.History[i].Cursor; got <= cursor || got > cursor+2 {
			w.violate("the history has cursor %d after %d", got, cursor)
		}
		cursor = effects.History[i].Cursor
	}
	// One transition may have no entry: a waiting operation continues.
	if next.Cursor < cursor || next.Cursor > before.Cursor+int64(len(effects.History))+1 {
		w.violate("the history is at cursor %d, the operation at %d", cursor, next.Cursor)
	}
}

// fromStage reports whether an operator has chosen the stage from which the operation runs again.
func fromStage(e engine.Event) bool {
	r, ok := e.(engine.Retry)
	return ok && r.Stage != ""
}

// checkShape checks that an operation is exactly one of in flight, waiting, pending and final.
func (w *world) checkShape(op *operation, before *engine.State, e engine.Event, next *engine.State, effects *engine.Effects) {
	inProgress := next.Status == event.InProgress
	switch {
	case next.Held() && (next.Status.Final() || !next.DueAt.IsZero() || !next.ExecuteBefore.IsZero()):
		w.violate("a held operation waits or has ended: %+v", next)
	case next.Limited() && (!inProgress || !next.DueAt.Equal(next.Deadline) || !next.ExecuteBefore.IsZero()):
		w.violate("an operation that waits for a limit is not due at its deadline only: %+v", next)
	case inProgress && !next.Held() && next.DueAt.IsZero() == next.ExecuteBefore.IsZero():
		w.violate("an operation in progress must wait for a result or for a time, and not for both: %+v", next)
	case !inProgress && (!next.DueAt.IsZero() || !next.ExecuteBefore.IsZero()):
		w.violate("an operation that is %s waits: %+v", next.Status, next)
	case inProgress && !next.Deadline.Equal(op.model.deadline):
		w.violate("the deadline is %s for a start at %s, want %s", next.Deadline, next.StartedAt, op.model.deadline)
	case inProgress && (next.DueAt.After(next.Deadline) || next.ExecuteBefore.After(next.Deadline)):
		w.violate("the operation waits beyond its deadline: %+v", next)
	case before.Status == event.InProgress && inProgress && !next.StartedAt.Equal(before.StartedAt):
		w.violate("the start has moved from %s to %s", before.StartedAt, next.StartedAt)
	case next.Status.Final() == next.FinishedAt.IsZero():
		w.violate("finished at %s as %s", next.FinishedAt, next.Status)
	case next.Stage < before.Stage && before.Ending == nil && !fromStage(e):
		w.violate("stage %d runs again after stage %d", next.Stage, before.Stage)
	case before.Status.Final() && (before.Status != event.Failed || next.Status != event.Pending):
		w.violate("an operation that is %s becomes %s", before.Status, next.Status)
	case effects.Finished != (next.Status.Final() && !before.Status.Final()):
		w.violate("finished is %t for %s after %s", effects.Finished, next.Status, before.Status)
	case next.Status == event.Failed && (next.Error == nil || next.Error.Message == ""):
		w.violate("the operation has failed without a reason")
	}
	// A new or repeated command must be published. A lost command may be repeated unchanged.
	due, _ := e.(engine.Due)
	if sent := next.InFlight() && (before.Held() || before.Limited() || next.Cursor != before.Cursor || next.Dispatch != before.Dispatch || !due.LostBefore.IsZero()); sent != effects.Dispatch {
		w.violate("dispatch is %t for command %d/%d after %d/%d", effects.Dispatch, next.Cursor, next.Dispatch, before.Cursor, before.Dispatch)
	}
}

// checkResult checks that a result is applied once, as the process definition requires.
func (w *world) checkResult(
	op *operation, before *engine.State, e engine.Event, next *engine.State, effects *engine.Effects, now time.Time,
) {
	r, ok := e.(engine.Result)
	if !ok {
		return
	}
	m := &op.model
	if !before.Awaits() || r.Cursor != before.AwaitedCursor() || m.counted[r.Cursor] {
		w.violate("a result of cursor %d is applied at cursor %d (in flight: %t)", r.Cursor, before.Cursor, before.InFlight())
	}
	m.counted[r.Cursor] = true
	m.memory = m.memory || r.StageMemory
	m.remembers = m.remembers || r.StageMemory
	if strings.HasPrefix(string(r.Details), `{"o`) {
		m.saved = append(m.saved, strings.Trim(string(r.Details), "{}"))
	}
	step := &op.p.Stages[before.Stage].Steps[before.Step]
	want, ends := r.Outcome, false
	var shortest, longest time.Duration // to the next try
	var end time.Time
	switch r.Outcome {
	case event.OutcomeFailed:
		want, ends = policy(step.OnFailure)
	case event.OutcomeRetry:
		var every time.Duration
		if every, end = w.budget(m, step, &r, now); !end.IsZero() && !now.Before(end) {
			w.checkSpent(step, &r, effects)
			want, ends = policy(step.OnTimeout)
		}
		if shortest, longest = m.backOff(step, r.Error != nil); r.Error == nil {
			shortest, longest = every, every
		}
		if r.RetryAfter > 0 {
			shortest, longest = r.RetryAfter, r.RetryAfter
		}
	}
	if len(effects.History) == 0 || effects.History[0].Outcome != want {
		w.violate("%s answers %s: history %+v, want %s", step.Name, r.Outcome, effects.History, want)
	}
	switch {
	case ends && outcomeOf(next) != event.Failed:
		w.violate("%s has failed and the operation is %s", step.Name, next.Status)
	case !ends && m.cancel && !m.ending && outcomeOf(next) != event.Cancelled:
		w.violate("the operation is %s although it was cancelled", next.Status)
	case want == event.OutcomeRetry && (!m.cancel || m.ending):
		limited := func(at time.Time) time.Time {
			for _, limit := range []time.Time{end, next.Deadline} {
				if !limit.IsZero() && limit.Before(at) {
					at = limit
				}
			}
			return at
		}
		// Both compute with fractions of nanoseconds.
		from, to := limited(now.Add(shortest-time.Microsecond)), limited(now.Add(longest+time.Microsecond))
		if next.DueAt.Before(from) || next.DueAt.After(to) {
			w.violate("%s is retried at %s, want from %s to %s", step.Name, next.DueAt, from, to)
		}
		if r.Error != nil && r.RetryAfter == 0 && m.tries[step.Name].failures > 2 && step.Retry.Factor > 1 {
			w.count(countBackOff)
		}
	}
}

// checkSpent checks that the error of a spent budget names the budget.
func (w *world) checkSpent(step *process.Step, r *engine.Result, effects *engine.Effects) {
	reason, counted := " was retried for "+step.Retry.Timeout.String(), countSpent
	if step.Wait != (process.Wait{}) && r.Error == nil {
		reason, counted = " has waited for "+step.Wait.Timeout.String(), countWaitSpent
	}
	w.count(counted)
	if h := effects.History; len(h) == 0 || h[0].Error == nil || !strings.Contains(h[0].Error.Message, reason) {
		w.violate("%s has spent its budget, but its error does not contain %q: %+v", step.Name, reason, h)
	}
}

// unreadable reports whether the details are not a JSON object, which fails the step for any outcome.
func unreadable(r *engine.Result) bool { return len(r.Details) > 0 && r.Details[0] != '{' }

// outcomeOf returns the final status of an ending operation, otherwise its current status.
func outcomeOf(s *engine.State) event.OperationState {
	if s.Ending != nil {
		return s.Ending.Status
	}
	return s.Status
}

func policy(p process.Policy) (want event.Outcome, ends bool) {
	if p == process.Skip {
		return event.OutcomeNotCompleted, false
	}
	return event.OutcomeFailed, true
}

// checkDue checks that a due operation is cancelled or times out if it must be.
func (w *world) checkDue(op *operation, before *engine.State, e engine.Event, next *engine.State, effects *engine.Effects, now time.Time) {
	due, ok := e.(engine.Due)
	switch {
	case !ok:
	case op.model.cancel && !op.model.ending && due.LostBefore.IsZero():
		if outcomeOf(next) != event.Cancelled {
			w.violate("the operation is %s although it was cancelled", next.Status)
		}
	case !now.Before(op.model.deadline) && op.model.ending:
		w.count(countDeadlines)
		if !next.Status.Final() {
			w.violate("the operation is %s after the deadline of its finally stage", next.Status)
		}
	case !now.Before(op.model.deadline):
		w.count(countDeadlines)
		if outcomeOf(next) != event.Failed {
			w.violate("the operation is %s after its deadline", next.Status)
		}
	case !due.LostBefore.IsZero() && (!due.WorkerAlive || next.ExecuteBefore.Before(before.ExecuteBefore)):
		w.violate("command %d was lost: its limit %s becomes %s, worker alive: %t", next.Cursor, before.ExecuteBefore, next.ExecuteBefore, due.WorkerAlive)
	case !due.LostBefore.IsZero():
		if (next.Dispatch > before.Dispatch) != due.ResultsOnly {
			w.violate("command %d has a new dispatch number: %t, only results are lost: %t", next.Cursor, next.Dispatch > before.Dispatch, due.ResultsOnly)
		}
		w.count(countSentAgain)
	case before.InFlight():
		w.checkUnanswered(op, before, due, next, effects, now)
	}
}

// checkUnanswered checks a command without a result: it is a failed try if a worker is live, and both spend the budget, unless the step
// waits for its worker.
func (w *world) checkUnanswered(op *operation, before *engine.State, due engine.Due, next *engine.State, effects *engine.Effects, now time.Time) {
	m, step := &op.model, &op.p.Stages[before.Stage].Steps[before.Step]
	if due.WorkerAlive || step.NoWorker != process.NoWorkerWait {
		_, end := w.budget(m, step, &engine.Result{Error: &event.Error{}}, before.SentAt)
		if !end.IsZero() && !now.Before(end) && (!due.WorkerAlive || before.Dispatch > 1) {
			want, ends := policy(step.OnTimeout)
			if h := effects.History; len(h) == 0 || h[0].Outcome != want || ends && outcomeOf(next) != event.Failed {
				w.violate("%s has no answer and no time left, and the operation is %s: %+v", step.Name, next.Status, h)
			}
			if due.WorkerAlive {
				w.count(countHangSpent)
			} else {
				w.count(countNoWorkerSpent)
			}
			return
		}
	}
	if due.WorkerAlive {
		m.backOff(step, true)
	}
	again := next.InFlight() && next.Dispatch == before.Dispatch+1 && next.AwaitedCursor() == before.AwaitedCursor()
	switch h := effects.History; {
	case due.WorkerAlive != again:
		w.violate("command %d is sent again: %t, worker alive: %t", before.AwaitedCursor(), again, due.WorkerAlive)
	case due.WorkerAlive && (len(h) != 1 || h[0].Outcome != event.OutcomeNoAnswer || next.Error == nil || next.Condition != engine.NoAnswer):
		w.violate("command %d has no answer, and the state does not show it: %+v", before.AwaitedCursor(), h)
	case !due.WorkerAlive && (len(h) != 0 || next.Dispatch != before.Dispatch):
		w.violate("command %d has no worker: %+v", before.AwaitedCursor(), h)
	case due.WorkerAlive:
		w.count(countSentAgain)
	}
}

// checkCondition checks that the state shows how the last try of a step went until the step is done, also while the next try is
// executing and while the steps before it are repeated.
func (w *world) checkCondition(op *operation, before *engine.State, e engine.Event, next *engine.State, effects *engine.Effects, at time.Time) {
	m := &op.model
	set := func(c engine.Condition, step string, since time.Time) {
		if m.condition != c {
			m.conditionSince = since
		}
		m.condition, m.conditionOf = c, step
	}
	for i := range effects.History {
		h := &effects.History[i]
		if h.Kind != engine.KindStep {
			continue
		}
		step := op.p.Stages[h.Stage].Steps[h.Step].Name
		switch h.Outcome {
		case event.OutcomeRetry:
			switch r, _ := e.(engine.Result); {
			case h.Error != nil:
				set(engine.Failing, step, at)
			case r.EventKey != "":
				set(engine.EventAwaited, step, at)
			default:
				set(engine.Polling, step, at)
			}
		case event.OutcomeStageLost:
			set(engine.Failing, step, at)
		case event.OutcomeNoAnswer:
			set(engine.NoAnswer, step, before.SentAt)
		default:
			if step == m.conditionOf {
				set("", "", time.Time{})
			}
		}
	}
	if next.Status != event.InProgress || next.Ending != nil && before.Ending == nil {
		m.condition, m.conditionOf, m.conditionSince = "", "", time.Time{}
	}
	if next.Condition != m.condition || !next.ConditionSince.Equal(m.conditionSince) {
		w.violate("%T: condition %q since %s, want %q since %s", e, next.Condition, next.ConditionSince, m.condition, m.conditionSince)
	}
}

// checkState compares the new state with the model.
func (w *world) checkState(op *operation, before, next *engine.State, effects *engine.Effects, now time.Time) {
	m, p := &op.model, op.p
	if next.Status.Final() {
		m.ends++
		w.counts.ends[next.Status]++
		w.checkSaved(m, next)
		if last := effects.Facts[len(effects.Facts)-1].Type; last != endOf(next.Status) {
			w.violate("the last fact of an operation that is %s is %s", next.Status, last)
		}
	}
	if len(next.NotCompleted) != len(m.notCompleted) {
		w.violate("not completed: %v, want %v", next.NotCompleted, m.notCompleted)
	}
	for _, step := range next.NotCompleted {
		if !m.notCompleted[step] {
			w.violate("not completed: %v, want %v", next.NotCompleted, m.notCompleted)
		}
	}
	if !next.InFlight() || (before.InFlight() || before.Held() || before.Limited()) && next.AwaitedCursor() == before.AwaitedCursor() {
		return
	}
	m.rollOver(p, now)
	if next.Stage != m.stage || next.Step != m.step {
		w.violate("the command is for step %d/%d, want %d/%d", next.Stage, next.Step, m.stage, m.step)
	}
	step := p.Stages[next.Stage].Steps[next.Step].Name
	if m.succeeded[step] {
		w.violate("%s of a finished stage runs again", step)
	}
	if m.skipped[step] {
		w.violate("%s runs although an operator has skipped it", step)
	}
	t := m.tries[step]
	if t.first.IsZero() {
		t.first = now
	}
	t.attempts++
	m.tries[step] = t
	if !next.FirstTriedAt.Equal(t.first) || next.StepAttempt != t.attempts {
		w.violate("attempt %d of %s, first tried at %s; want attempt %d, first at %s",
			next.StepAttempt, step, next.FirstTriedAt, t.attempts, t.first)
	}
	if next.StageMemory != m.memory {
		w.violate("the stage memory of stage %d is used: %t, want %t", next.Stage, next.StageMemory, m.memory)
	}
	// The stage memory is kept by attempt.
	if last := m.attempt[next.Stage]; m.fresh && next.StageAttempt <= last || !m.fresh && next.StageAttempt != last {
		w.violate("attempt %d of stage %d after attempt %d, restarted: %t", next.StageAttempt, next.Stage, last, m.fresh)
	}
	m.attempt[next.Stage], m.fresh = next.StageAttempt, false
	m.commands[next.AwaitedCursor()] = &sent{at: event.Position{
		Stage: p.Stages[next.Stage].Name, Step: step, StageAttempt: next.StageAttempt, StepAttempt: next.StepAttempt,
	}}
	w.checkSaved(m, next)
}

// checkStages checks that the memory of a stage is purged at its end or at the end of the operation.
func (w *world) checkStages(op *operation, before, next *engine.State, effects *engine.Effects, left bool) {
	if left && (before.Stage != next.Stage || effects.Finished) &&
		!slices.Contains(effects.PurgeStages, op.p.Stages[before.Stage].Name) && !slices.Contains(effects.PurgeStages, "") {
		w.violate("the memory of stage %d is not purged", before.Stage)
	}
	for _, end := range effects.Stages {
		if end.Took < 0 {
			w.violate("a stage has taken %s", end.Took)
		}
	}
	for i := range effects.History {
		if h := &effects.History[i]; h.Took < 0 {
			w.violate("a step has taken %s", h.Took)
		}
	}
}

func endOf(s event.OperationState) event.Type {
	switch s {
	case event.Succeeded:
		return event.TypeOperationSucceeded
	case event.Failed:
		return event.TypeOperationFailed
	default:
		return event.TypeOperationCancelled
	}
}

func (w *world) checkSaved(m *model, s *engine.State) {
	details := string(s.Details)
	for _, member := range m.saved {
		if !strings.Contains(details, member) {
			w.violate("the details %s have lost %s", details, member)
		}
	}
}
