package engine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// transition is what a planted bug may spoil.
type transition struct {
	p      *process.Process
	before engine.State
	event  engine.Event
	next   *engine.State
	out    *engine.Effects
	now    time.Time
}

// TestTheSimulationFindsPlantedBugs proves that the simulation can fail: each bug must be found by as many schedules as run
// without one.
func TestTheSimulationFindsPlantedBugs(t *testing.T) {
	t.Parallel()
	plain, withFinally, deprovision := load(t, provision), load(t, provision+finally), load(t, deprovision)
	for _, bug := range []struct {
		name string
		// told may change what the engine is told, and decided what it decides; one of them is nil.
		told    func(s *engine.State, e engine.Event) engine.Event
		decided func(t *transition)
		want    string // the invariant that finds it
		finally bool   // the process has a finally stage
	}{
		{name: "a result with an old cursor is taken", want: "counts at cursor", told: func(s *engine.State, e engine.Event) engine.Event {
			if r, ok := e.(engine.Result); ok && s.InFlight() && r.Cursor < s.Cursor {
				r.Cursor = s.Cursor
				return r
			}
			return e
		}},
		{name: "a failure is passed over against the policy", want: "want failed", told: func(s *engine.State, e engine.Event) engine.Event {
			if r, ok := e.(engine.Result); ok && r.Outcome == event.OutcomeFailed && s.Stage == 1 {
				r.Outcome = event.OutcomeNotCompleted
				return r
			}
			return e
		}},
		{name: "the details of the last result are dropped on cancel", want: "have lost", decided: func(t *transition) {
			if t.next.Status == event.Cancelled {
				t.next.Details = t.before.Details
			}
		}},
		{name: "a finished stage runs again", want: "runs again after stage", decided: func(t *transition) {
			if _, ok := t.event.(engine.Due); ok && t.next.Stage > 1 && t.next.InFlight() && t.next.Dispatch == 1 {
				t.next.Stage, t.next.Step = t.next.Stage-1, 0
			}
		}},
		{name: "the time to go on is lost", want: "must wait for a result or for a time", decided: func(t *transition) {
			if r, ok := t.event.(engine.Result); ok && r.Outcome == event.OutcomeStageLost {
				t.next.DueAt = time.Time{}
			}
		}},
		{name: "a command that nobody answers is forgotten", want: "must wait for a result or for a time", decided: func(t *transition) {
			if due, ok := t.event.(engine.Due); ok && !due.WorkerAlive && t.next.InFlight() {
				t.next.ExecuteBefore = time.Time{}
			}
		}},
		{name: "a command that is sent again is not published", want: "dispatch is false", decided: func(t *transition) {
			if t.next.Cursor == t.before.Cursor {
				t.out.Dispatch = false
			}
		}},
		{name: "a command is sent to nobody", want: "a worker lives: false", told: func(_ *engine.State, e engine.Event) engine.Event {
			if due, ok := e.(engine.Due); ok {
				due.WorkerAlive = true
				return due
			}
			return e
		}},
		{name: "the deadline is forgotten", want: "the deadline is", decided: func(t *transition) {
			if _, ok := t.event.(engine.Due); ok && t.next.Status == event.InProgress {
				t.next.Deadline = t.now.Add(time.Hour)
			}
		}},
		{name: "a step is left out", want: "the command is for step", decided: func(t *transition) {
			if t.next.InFlight() && t.next.Step == 1 && t.before.Step == 0 && len(t.p.Stages[t.next.Stage].Steps) > 2 {
				t.next.Step++
			}
		}},
		{name: "a stage begins before the last one is finished", want: "the command is for step", decided: func(t *transition) {
			if t.next.InFlight() && t.next.Stage == 1 && t.next.Step == 2 && t.before.Step == 1 && len(t.p.Stages) == 3 {
				t.next.Stage, t.next.Step = 2, 0
			}
		}},
		{name: "a budget starts anew with every attempt", want: "first tried at", decided: func(t *transition) {
			if t.out.Dispatch && t.next.Dispatch == 1 {
				t.next.FirstTriedAt = t.now
			}
		}},
		{name: "a cursor is used twice", want: "cursor", decided: func(t *transition) {
			if _, ok := t.event.(engine.Due); ok && t.before.Waiting() && t.next.InFlight() {
				t.next.Cursor = t.before.Cursor
			}
		}},
		{name: "an operation that has ended is cancelled", want: "an operation that is", told: func(s *engine.State, e engine.Event) engine.Event {
			if _, ok := e.(engine.Cancel); ok && s.Status == event.Succeeded {
				s.Status = event.Pending
			}
			return e
		}},
		{name: "the reason of a failure is lost", want: "nobody knows why", decided: func(t *transition) {
			if t.next.Status == event.Failed {
				t.next.Error = nil
			}
		}},
		{name: "a repeated stage keeps its memory", want: "the stage memory", decided: func(t *transition) {
			if _, ok := t.event.(engine.Due); ok && t.next.InFlight() && t.next.StageAttempt > t.before.StageAttempt {
				t.next.StageMemory = t.before.StageMemory
			}
		}},
		{name: "a step that has succeeded stays not completed", want: "not completed", decided: func(t *transition) {
			if len(t.next.NotCompleted) < len(t.before.NotCompleted) {
				t.next.NotCompleted = slices.Clone(t.before.NotCompleted)
			}
		}},
		{name: "a retry forgets the cancellation", want: "although it was cancelled", told: func(s *engine.State, e engine.Event) engine.Event {
			if r, ok := e.(engine.Result); ok && r.Outcome == event.OutcomeRetry {
				s.CancelReason = ""
			}
			return e
		}},
		{name: "the finally stage is left out", finally: true, want: "without its finally stage", decided: func(t *transition) {
			if e := t.next.Ending; e != nil && t.before.Ending == nil {
				t.next.Status, t.next.Error, t.next.Stage, t.next.Step = e.Status, &e.Error, e.Stage, e.Step
				t.next.Ending, t.next.FinishedAt = nil, t.now
				t.next.DueAt, t.next.ExecuteBefore, t.next.Dispatch = time.Time{}, time.Time{}, 0
				t.out.Dispatch, t.out.Finished = false, true
			}
		}},
		{name: "how the operation ends is forgotten", finally: true, want: "is forgotten", decided: func(t *transition) {
			if t.before.Ending != nil && t.next.Status == event.InProgress {
				t.next.Ending = nil
			}
		}},
		{name: "the finally stage shares a cursor with what was out", finally: true, want: "cursor", decided: func(t *transition) {
			if t.next.Ending != nil && t.before.Ending == nil && t.before.InFlight() {
				t.next.Cursor = t.before.Cursor
			}
		}},
		{name: "the finally stage has no time", finally: true, want: "the deadline is", decided: func(t *transition) {
			if t.next.Status == event.InProgress {
				t.next.Deadline = t.next.StartedAt.Add(t.p.Timeout)
			}
		}},
		{name: "the reason is replaced by what the finally stage says", finally: true, want: "has become", decided: func(t *transition) {
			if t.before.Ending != nil && t.next.Status.Final() {
				t.next.Error = &event.Error{Message: "the finally stage is done"}
			}
		}},
	} {
		provision := plain
		if bug.finally {
			provision = withFinally
		}
		t.Run(bug.name, func(t *testing.T) {
			t.Parallel()
			apply := func(p *process.Process, s engine.State, e engine.Event, now time.Time) (engine.State, engine.Effects, error) {
				told, given := e, s
				if bug.told != nil {
					told = bug.told(&given, e)
				}
				next, out, err := engine.Apply(p, given, told, now)
				if err == nil && bug.decided != nil {
					bug.decided(&transition{p: p, before: s, event: e, next: &next, out: &out, now: now})
				}
				return next, out, err
			}
			for seed := range schedules() {
				problem := simulate(seed, apply, provision, deprovision, nil)
				if problem == "" {
					continue
				}
				if !strings.Contains(problem, bug.want) {
					t.Errorf("found by %q in seed %d, want %q", problem, seed, bug.want)
				}
				return
			}
			t.Errorf("not found in %d schedules", schedules())
		})
	}
}
