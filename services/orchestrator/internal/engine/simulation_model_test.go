package engine_test

import (
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// model is what must be true of an operation, derived from what happened to it and not from the engine's own state.
type model struct {
	stage, step  int
	restart      bool                 // the stage starts again when the operation is taken up
	first        map[string]time.Time // first try of the steps of this stage that have not succeeded since
	attempts     map[string]int
	notCompleted map[string]bool
	saved        []string // members that the details must have
	counted      map[int64]bool
	commands     map[int64]event.Position
	memory       bool // a step of this stage attempt has used the stage memory
	cancel       bool
	ends         int
	deadline     time.Time
	// ending tells that the finally stage runs, and where the operation stood when it began before all stages were finished.
	ending  bool
	stoodAt int
}

func newModel() *model {
	return &model{
		first: map[string]time.Time{}, attempts: map[string]int{}, notCompleted: map[string]bool{},
		counted: map[int64]bool{}, commands: map[int64]event.Position{},
	}
}

// check holds one committed transition against the invariants.
func (w *world) check(op *operation, before *engine.State, e engine.Event, next *engine.State, effects *engine.Effects, at time.Time) {
	if !effects.Changed {
		w.violate("%T: a transition that is not to be written", e)
	}
	w.checkCursor(before, e, next, effects)
	op.model.before(op.p, before, e, at)
	w.checkResult(op, before, e, next, effects, at)
	w.checkDue(op, before, e, next, at)
	for i := range effects.History {
		w.checkEntry(op, before, e, &effects.History[i], at)
	}
	w.checkEnding(op, before, next, at)
	w.checkShape(op, before, next, effects)
	w.checkState(op, before, next, effects, at)
}

func (w *world) checkCursor(before *engine.State, e engine.Event, next *engine.State, effects *engine.Effects) {
	grows := true
	switch e.(type) {
	case engine.Cancel, engine.Due:
		grows = !before.InFlight() || next.Status.Final() || next.Ending != nil && before.Ending == nil // otherwise the command that is out stays
	}
	if grows && next.Cursor <= before.Cursor || !grows && next.Cursor != before.Cursor {
		w.violate("%T: cursor %d after %d", e, next.Cursor, before.Cursor)
	}
	cursor := before.Cursor
	for i := range effects.History {
		if got := effects.History[i].Cursor; got <= cursor {
			w.violate("the history has cursor %d after %d", got, cursor)
		}
		cursor = effects.History[i].Cursor
	}
	if cursor > next.Cursor {
		w.violate("the history is at cursor %d, the operation at %d", cursor, next.Cursor)
	}
}

// checkShape: an operation is in flight, waiting, pending or final, and exactly one of them.
func (w *world) checkShape(op *operation, before, next *engine.State, effects *engine.Effects) {
	inProgress := next.Status == event.InProgress
	switch {
	case inProgress && next.DueAt.IsZero() == next.ExecuteBefore.IsZero():
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
	case next.Stage < before.Stage && before.Ending == nil:
		w.violate("stage %d runs again after stage %d", next.Stage, before.Stage)
	case before.Status.Final() && (before.Status != event.Failed || next.Status != event.Pending):
		w.violate("an operation that is %s becomes %s", before.Status, next.Status)
	case effects.Finished != (next.Status.Final() && !before.Status.Final()):
		w.violate("finished is %t for %s after %s", effects.Finished, next.Status, before.Status)
	case next.Status == event.Failed && (next.Error == nil || next.Error.Message == ""):
		w.violate("the operation has failed and nobody knows why")
	}
	// A command that is new, or sent again, must be published.
	if sent := next.InFlight() && (next.Cursor != before.Cursor || next.Dispatch != before.Dispatch); sent != effects.Dispatch {
		w.violate("dispatch is %t for command %d/%d after %d/%d", effects.Dispatch, next.Cursor, next.Dispatch, before.Cursor, before.Dispatch)
	}
}

// checkResult: a result counts once, and does what the process says.
func (w *world) checkResult(
	op *operation, before *engine.State, e engine.Event, next *engine.State, effects *engine.Effects, now time.Time,
) {
	r, ok := e.(engine.Result)
	if !ok {
		return
	}
	m := op.model
	if !before.InFlight() || r.Cursor != before.Cursor || m.counted[r.Cursor] {
		w.violate("a result of cursor %d counts at cursor %d (in flight: %t)", r.Cursor, before.Cursor, before.InFlight())
	}
	m.counted[r.Cursor] = true
	m.memory = m.memory || r.StageMemory
	if r.Details != nil {
		m.saved = append(m.saved, strings.Trim(string(r.Details), "{}"))
	}
	step := &op.p.Stages[before.Stage].Steps[before.Step]
	want, ends := r.Outcome, false
	end := m.first[step.Name].Add(step.Retry.Timeout)
	switch r.Outcome {
	case event.OutcomeFailed:
		want, ends = policy(step.OnFailure)
	case event.OutcomeRetry:
		if spent := step.Retry.Timeout > 0 && !now.Before(end); spent {
			want, ends = policy(step.OnTimeout)
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
		after := r.RetryAfter
		if after == 0 {
			after = step.Retry.Every
		}
		at := now.Add(after)
		for _, limit := range []time.Time{end, next.Deadline} {
			if limit.Before(at) && (!limit.Equal(end) || step.Retry.Timeout != 0) {
				at = limit
			}
		}
		if !next.DueAt.Equal(at) {
			w.violate("%s is retried at %s, want %s", step.Name, next.DueAt, at)
		}
	}
}

// outcomeOf is how the operation ends, or where it is if that is open.
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

// checkDue: a cancellation and the deadline take effect when the time has come.
func (w *world) checkDue(op *operation, before *engine.State, e engine.Event, next *engine.State, now time.Time) {
	due, ok := e.(engine.Due)
	switch {
	case !ok:
	case op.model.cancel && !op.model.ending:
		if outcomeOf(next) != event.Cancelled {
			w.violate("the operation is %s although it was cancelled", next.Status)
		}
	case !now.Before(op.model.deadline) && op.model.ending:
		if !next.Status.Final() {
			w.violate("the operation is %s after the deadline of its finally stage", next.Status)
		}
	case !now.Before(op.model.deadline):
		if outcomeOf(next) != event.Failed {
			w.violate("the operation is %s after its deadline", next.Status)
		}
	case before.InFlight() && next.InFlight() && (next.Dispatch > before.Dispatch) != due.WorkerAlive:
		w.violate("command %d is sent again: %t, a worker lives: %t", next.Cursor, next.Dispatch > before.Dispatch, due.WorkerAlive)
	}
}

// checkState holds the new state against the model.
func (w *world) checkState(op *operation, before, next *engine.State, effects *engine.Effects, now time.Time) {
	m, p := op.model, op.p
	if next.Status.Final() {
		m.ends++
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
	if !next.InFlight() || next.Cursor == before.Cursor {
		return
	}
	m.rollOver(p, now)
	if next.Stage != m.stage || next.Step != m.step {
		w.violate("the command is for step %d/%d, want %d/%d", next.Stage, next.Step, m.stage, m.step)
	}
	step := p.Stages[next.Stage].Steps[next.Step].Name
	if m.first[step].IsZero() {
		m.first[step] = now
	}
	m.attempts[step]++
	if !next.FirstTriedAt.Equal(m.first[step]) || next.StepAttempt != m.attempts[step] {
		w.violate("attempt %d of %s, first tried at %s; want attempt %d, first at %s",
			next.StepAttempt, step, next.FirstTriedAt, m.attempts[step], m.first[step])
	}
	if next.StageMemory != m.memory {
		w.violate("the stage memory of stage %d is used: %t, want %t", next.Stage, next.StageMemory, m.memory)
	}
	m.commands[next.Cursor] = event.Position{
		Stage: p.Stages[next.Stage].Name, Step: step, StageAttempt: next.StageAttempt, StepAttempt: next.StepAttempt,
	}
	w.checkSaved(m, next)
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

// checkCommand: what is published is a command that was committed.
func (w *world) checkCommand(op *operation, worker string, c *event.StepExecute) {
	at, ok := op.model.commands[c.Cursor]
	if !ok || at != (event.Position{Stage: c.Stage, Step: c.Step, StageAttempt: c.StageAttempt, StepAttempt: c.StepAttempt}) {
		w.violate("command %+v was never committed; cursor %d is %+v", c, c.Cursor, at)
	}
	if worker == process.WorkerOrchestrator || !slices.ContainsFunc(op.p.Stages, func(s process.Stage) bool {
		return slices.ContainsFunc(s.Steps, func(step process.Step) bool { return step.Name == c.Step && step.Worker == worker })
	}) {
		w.violate("step %s is not for worker %s", c.Step, worker)
	}
}
