package simulation_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// bug is a planted bug outside of the engine.
type bug int

const (
	noBug bug = iota
	bugAckBeforeCommit
	bugPublishBeforeCommit
	bugAckBeforePublish
	bugRequestAckedFirst
	bugNoRepublish
	bugNoDispatchInID
	bugNoCompareAndSet
	bugStaleFromTheCache
	bugNoSweepOfPending
	bugNoSweepOfDue
	bugNoSweepOfUnanswered
	bugNoWakeUp
	bugInstanceNotFreed
	bugDetailsNotLeft
	bugTwoOfAnInstance
	bugNoLimit
	bugOvertaking
	bugNoTurns
	bugUpgradesFirst
	bugPlaceNotFreed
	bugLimitOfEachType
	bugNoPreemption
	bugRetryOfAnOldOne
	bugNothingAtAStart
	bugFirstSentAtAStart
	bugNoFactsNote
	bugNoFactsAgain
	bugNoSweepOfHeld
	bugStartsInHold
	bugSendsInHold
	bugFoldsUnacknowledged
	bugFoldsUnnoted
	bugFoldsTooMany
	bugFoldsUnsaved
	bugFoldsFromTheLast
	bugRepetitionDelivered
	bugDeliveredAgain
	bugNoSweepOfSignals
	bugSignalNotStored
	bugSignalsReversed
	bugLimitNotCounted
	bugNoLimitAtDecision
	bugNoReview
	bugQueuesNotFound
	bugUpgradesNotBehind
	bugNewestFirst
)

// spoiled is a transition that a planted bug of the engine may change.
type spoiled struct {
	p      *process.Process
	before engine.State
	event  engine.Event
	next   *engine.State
	out    *engine.Effects
	now    time.Time
}

// planted is a bug that the simulation must find.
type planted struct {
	name string
	// told may change the input of the engine, decided its output, and bug selects a bug outside of the engine; only one of them is set.
	told    func(s *engine.State, e engine.Event) engine.Event
	decided func(t *spoiled)
	bug     bug
	// read may change the process definition.
	read func(p *process.Process) *process.Process
	want string // the invariant that finds it; empty if several may
	// first is the first seed that runs; those before it do not find the bug.
	first uint64
}

// withoutWaits returns a function that removes the wait budgets from a definition.
func withoutWaits() func(p *process.Process) *process.Process {
	return changedSteps(func(s *process.Step) { s.Wait = process.Wait{} })
}

// withNoWorkerWait returns a function that makes all steps of a definition wait for their workers.
func withNoWorkerWait() func(p *process.Process) *process.Process {
	return changedSteps(func(s *process.Step) { s.NoWorker = process.NoWorkerWait })
}

// changedSteps returns a function that changes the steps of a definition.
func changedSteps(change func(s *process.Step)) func(p *process.Process) *process.Process {
	made := map[*process.Process]*process.Process{}
	return func(p *process.Process) *process.Process {
		if made[p] == nil {
			c := *p
			c.Stages = slices.Clone(p.Stages)
			for i := range c.Stages {
				c.Stages[i].Steps = slices.Clone(c.Stages[i].Steps)
				for j := range c.Stages[i].Steps {
					change(&c.Stages[i].Steps[j])
				}
			}
			made[p] = &c
		}
		return made[p]
	}
}

// spoilTry changes the budgets of a step after a result with the outcome retry.
func (t *spoiled) spoilTry(change func(r *engine.Result, before engine.Try, next *engine.Try)) {
	r, ok := t.event.(engine.Result)
	if !ok || r.Outcome != event.OutcomeRetry {
		return
	}
	name := t.p.Stages[t.before.Stage].Steps[t.before.Step].Name
	next, ok := t.next.Tries[name]
	if !ok {
		return
	}
	change(&r, t.before.Tries[name], &next)
	t.next.Tries = maps.Clone(t.next.Tries)
	t.next.Tries[name] = next
}

// plantedBugs returns all bugs that the simulation must find.
func plantedBugs() []planted {
	return slices.Concat(transitionBugs(), answerBugs(), budgetBugs(), endingBugs(), outsideBugs(), holdBugs(), foldBugs(), signalBugs(), limitBugs())
}

// holdBugs are bugs with holds.
func holdBugs() []planted {
	released := func(change func(t *spoiled)) func(t *spoiled) {
		return func(t *spoiled) {
			if _, ok := t.event.(engine.Release); ok && t.next.Status == event.InProgress {
				change(t)
			}
		}
	}
	return []planted{
		{name: "held operations are not released", want: "do not end", bug: bugNoSweepOfHeld},
		{name: "an operation starts inside a hold", want: "starts inside a hold", bug: bugStartsInHold},
		{name: "a command is sent inside a hold", want: "is sent inside a hold", bug: bugSendsInHold},
		{name: "the deadline does not stop in a hold", want: "the deadline is", decided: released(func(t *spoiled) { t.next.Deadline = t.before.Deadline })},
		{name: "the budget does not stop in a hold", want: "was first tried at", decided: released(func(t *spoiled) { t.next.FirstTriedAt = t.before.FirstTriedAt })},
		{name: "the budgets of other steps do not stop in a hold", first: 870, decided: released(func(t *spoiled) { t.next.Tries = t.before.Tries })},
		{name: "a released command is not sent", want: "dispatch is false", decided: released(func(t *spoiled) { t.out.Dispatch = false })},
		{name: "the late result of a held command is dropped", want: "acknowledged but not applied", told: func(s *engine.State, e engine.Event) engine.Event {
			if _, ok := e.(engine.Result); ok && s.Held() {
				s.Dispatch = 1
			}
			return e
		}},
	}
}

// answerBugs are bugs with commands that are not answered.
func answerBugs() []planted {
	return []planted{
		{name: "a hang leaves no entry in the history", want: "the state does not show it", decided: func(t *spoiled) {
			if h := t.out.History; len(h) == 1 && h[0].Outcome == event.OutcomeNoAnswer {
				t.out.History, t.out.Facts, t.next.Cursor, t.next.CommandCursor = nil, nil, t.before.Cursor, t.before.CommandCursor
			}
		}},
		{name: "a hang does not spend the budget", told: func(s *engine.State, e engine.Event) engine.Event {
			if due, ok := e.(engine.Due); ok && due.WorkerAlive && s.InFlight() {
				s.FirstTriedAt, s.SentAt, s.Tries = s.ExecuteBefore, s.ExecuteBefore, nil
			}
			return e
		}},
		{name: "a missing worker does not spend the budget", read: withNoWorkerWait()},
		{name: "the late result of a slow worker is rejected", want: "acknowledged but not applied", told: func(s *engine.State, e engine.Event) engine.Event {
			if _, ok := e.(engine.Result); ok {
				s.CommandCursor = 0
			}
			return e
		}},
		{name: "a command that is sent again has a new cursor", decided: func(t *spoiled) {
			t.next.CommandCursor = 0
		}},
		{name: "a failing step appears as polling", want: "condition", decided: func(t *spoiled) {
			if t.next.Condition == engine.Failing {
				t.next.Condition = engine.Polling
			}
		}},
		{name: "the condition flickers", want: "condition", decided: func(t *spoiled) {
			if t.next.Condition != "" && t.next.Condition != engine.NoAnswer && t.out.Dispatch {
				t.next.Condition, t.next.ConditionSince = "", time.Time{}
			}
		}},
	}
}

// transitionBugs are bugs in the transitions of the engine.
func transitionBugs() []planted {
	return []planted{
		{name: "a result with an old cursor is applied", want: "is applied at cursor", told: func(s *engine.State, e engine.Event) engine.Event {
			if r, ok := e.(engine.Result); ok && s.InFlight() && r.Cursor < s.AwaitedCursor() {
				r.Cursor = s.AwaitedCursor()
				return r
			}
			return e
		}},
		{name: "a failed step is skipped against the policy", want: "want failed", told: func(s *engine.State, e engine.Event) engine.Event {
			if r, ok := e.(engine.Result); ok && r.Outcome == event.OutcomeFailed {
				r.Outcome = event.OutcomeNotCompleted
				return r
			}
			return e
		}},
		{name: "the details of the last result are dropped on cancel", want: "have lost", decided: func(t *spoiled) {
			if t.next.Status == event.Cancelled {
				t.next.Details = t.before.Details
			}
		}},
		{name: "a finished stage runs again", decided: func(t *spoiled) {
			if _, ok := t.event.(engine.Due); ok && t.next.Stage > 1 && t.next.InFlight() && t.next.Dispatch == 1 {
				t.next.Stage, t.next.Step = t.next.Stage-1, 0
			}
		}},
		{name: "the due time is lost", want: "must wait for a result or for a time", decided: func(t *spoiled) {
			if r, ok := t.event.(engine.Result); ok && r.Outcome == event.OutcomeStageLost {
				t.next.DueAt = time.Time{}
			}
		}},
		{name: "an unanswered command is dropped", want: "must wait for a result or for a time", decided: func(t *spoiled) {
			if due, ok := t.event.(engine.Due); ok && !due.WorkerAlive && t.next.InFlight() {
				t.next.ExecuteBefore = time.Time{}
			}
		}},
		{name: "a command that is sent again is not published", want: "dispatch is false", decided: func(t *spoiled) {
			if t.next.AwaitedCursor() == t.before.AwaitedCursor() {
				t.out.Dispatch = false
			}
		}},
		{name: "more time goes beyond the budget", first: 950, want: "the budget ends at", decided: func(t *spoiled) {
			if x, ok := t.event.(engine.Extend); ok {
				if by := t.now.Add(x.For).Sub(t.next.ExecuteBefore).Truncate(time.Millisecond); by > 0 && t.now.Add(x.For).Before(t.next.Deadline) {
					t.next.ExecuteBefore, t.next.Extended = t.next.ExecuteBefore.Add(by), t.next.Extended+by
				}
			}
		}},
		{name: "a stale cursor gets more time", want: "more time for cursor", told: func(s *engine.State, e engine.Event) engine.Event {
			if x, ok := e.(engine.Extend); ok && s.InFlight() {
				x.Cursor = s.AwaitedCursor()
				return x
			}
			return e
		}},
		{name: "the next command keeps the extension", want: "a new command is extended", decided: func(t *spoiled) {
			if _, ok := t.event.(engine.Result); ok && t.before.Extended > 0 && t.next.InFlight() {
				t.next.Extended = t.before.Extended
			}
		}},
		{name: "a command is sent without a worker", want: "worker alive: false", told: func(_ *engine.State, e engine.Event) engine.Event {
			if due, ok := e.(engine.Due); ok {
				due.WorkerAlive = true
				return due
			}
			return e
		}},
		{name: "the deadline is moved", want: "the deadline is", decided: func(t *spoiled) {
			if _, ok := t.event.(engine.Due); ok && t.next.Status == event.InProgress {
				t.next.Deadline = t.now.Add(time.Hour)
			}
		}},
		{name: "a step is omitted", want: "the command is for step", decided: func(t *spoiled) {
			if t.next.InFlight() && t.next.Step == 1 && t.before.Step == 0 && len(t.p.Stages[t.next.Stage].Steps) > 2 {
				t.next.Step++
			}
		}},
		{name: "a stage starts before the last one is finished", want: "the command is for step", decided: func(t *spoiled) {
			if t.next.InFlight() && t.next.Stage == 1 && t.next.Step == 2 && t.before.Step == 1 && len(t.p.Stages) == 3 {
				t.next.Stage, t.next.Step = 2, 0
			}
		}},
	}
}

// budgetBugs are bugs in the budgets of steps.
func budgetBugs() []planted {
	return []planted{
		{name: "a budget restarts with every attempt", want: "first tried at", decided: func(t *spoiled) {
			if t.out.Dispatch && t.next.Dispatch == 1 {
				t.next.FirstTriedAt = t.now
			}
		}},
		{name: "waiting counts against the retry budget", read: withoutWaits()},
		{name: "the retry budget is not reset after waiting", decided: func(t *spoiled) {
			t.spoilTry(func(_ *engine.Result, before engine.Try, next *engine.Try) {
				if !before.FailingSince.IsZero() {
					next.FailingSince = before.FailingSince
				}
			})
		}},
		{name: "the wait budget restarts after an error", decided: func(t *spoiled) {
			t.spoilTry(func(r *engine.Result, _ engine.Try, next *engine.Try) {
				if r.Error != nil {
					next.WaitingSince = time.Time{}
				}
			})
		}},
		{name: "the wait budget is lost when a stage is repeated", first: 10_170, decided: func(t *spoiled) {
			_, due := t.event.(engine.Due)
			_, signal := t.event.(engine.Signal)
			if (due || signal) && t.next.StageAttempt > t.before.StageAttempt {
				t.next.Tries = maps.Clone(t.next.Tries)
				for name, try := range t.next.Tries {
					try.WaitingSince = time.Time{}
					t.next.Tries[name] = try
				}
			}
		}},
		{name: "an outage does not make the retry interval grow", want: "is retried at", decided: func(t *spoiled) {
			t.spoilTry(func(_ *engine.Result, _ engine.Try, next *engine.Try) { next.Failures = min(next.Failures, 1) })
		}},
		{name: "the retry interval stays long after a poll", want: "is retried at", decided: func(t *spoiled) {
			t.spoilTry(func(r *engine.Result, before engine.Try, next *engine.Try) {
				if r.Error == nil {
					next.Failures = before.Failures
				}
			})
		}},
		{name: "the jitter exceeds its bound", want: "is retried at", read: changedSteps(func(s *process.Step) { s.Retry.Jitter *= 2 })},
		{name: "the retry interval exceeds its maximum", want: "is retried at", read: changedSteps(func(s *process.Step) { s.Retry.Max *= 2 })},
		{name: "the back-off overrides the worker's retry-after", want: "is retried at", told: func(_ *engine.State, e engine.Event) engine.Event {
			if r, ok := e.(engine.Result); ok && r.Outcome == event.OutcomeRetry && r.Error != nil {
				r.RetryAfter = 0
				return r
			}
			return e
		}},
		{name: "a repetition of the stage undoes a skip", want: "although an operator has skipped it", decided: func(t *spoiled) {
			if _, ok := t.event.(engine.SkipStep); ok {
				t.next.Skipped = nil
			}
		}},
		{name: "a skip outlives the retry by an operator", decided: func(t *spoiled) {
			if _, ok := t.event.(engine.Retry); ok {
				t.next.Skipped = map[string]string{t.p.Stages[t.next.Stage].Steps[0].Name: "me"}
			}
		}},
		{name: "a step that was skipped again counts as completed", want: "not completed", decided: func(t *spoiled) {
			if _, ok := t.event.(engine.SkipStep); !ok && len(t.next.Skipped) > 0 && t.next.StageAttempt > t.before.StageAttempt {
				t.next.NotCompleted = nil
			}
		}},
		{name: "a retry ignores the chosen stage", first: 550, decided: func(t *spoiled) {
			if e, ok := t.event.(engine.Retry); ok && e.Stage != "" {
				t.next.Stage = t.before.Stage
			}
		}},
		{name: "a retry ignores the chosen step", first: 2090, want: "is recorded, want", decided: func(t *spoiled) {
			if e, ok := t.event.(engine.Retry); ok && e.Step != "" {
				t.next.Step = 0
			}
		}},
		{name: "a retry from a step forgets that its stage has used the memory", first: 11_090, want: "the stage memory", decided: func(t *spoiled) {
			if e, ok := t.event.(engine.Retry); ok && e.Step != "" {
				t.next.StageMemory = false
			}
		}},
		{name: "an operation is retried from a step that it has not reached", first: 4410, want: "is allowed", told: func(s *engine.State, e engine.Event) engine.Event {
			if r, ok := e.(engine.Retry); ok && r.Stage != "" && s.Step == 0 {
				r.Step = ""
				return r
			}
			return e
		}},
		{name: "an operation is retried from a stage that it has not reached", first: 390, want: "is allowed", told: func(s *engine.State, e engine.Event) engine.Event {
			if r, ok := e.(engine.Retry); ok && s.Stage == 0 {
				r.Stage = ""
				return r
			}
			return e
		}},
		{name: "a stage that runs again uses the memory of an earlier attempt", first: 550, decided: func(t *spoiled) {
			if _, ok := t.event.(engine.Retry); ok && t.next.Stage < t.before.Stage {
				t.next.Tries, t.next.StageAttempt = nil, 0
			}
		}},
		{name: "a budget restarts when an operator skips a step", want: "first tried at", decided: func(t *spoiled) {
			if _, ok := t.event.(engine.SkipStep); ok && t.next.InFlight() {
				t.next.FirstTriedAt = t.now.Add(time.Second)
			}
		}},
	}
}

// endingBugs are bugs in the end of stages and operations, and in what they keep.
func endingBugs() []planted {
	return []planted{
		{name: "a cursor is used twice", want: "cursor", decided: func(t *spoiled) {
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
		{name: "the reason of a failure is lost", want: "without a reason", decided: func(t *spoiled) {
			if t.next.Status == event.Failed {
				t.next.Error = nil
			}
		}},
		{name: "a repeated stage keeps its memory", want: "the stage memory", decided: func(t *spoiled) {
			if _, ok := t.event.(engine.Due); ok && t.next.InFlight() && t.next.StageAttempt > t.before.StageAttempt {
				t.next.StageMemory = t.before.StageMemory
			}
		}},
		{name: "a step that has succeeded stays not completed", want: "not completed", decided: func(t *spoiled) {
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
		{name: "the finally stage is omitted", want: "without its finally stage", decided: func(t *spoiled) {
			if e := t.next.Ending; e != nil && t.before.Ending == nil {
				t.next.Status, t.next.Error, t.next.Stage, t.next.Step = e.Status, &e.Error, e.Stage, e.Step
				t.next.Ending, t.next.FinishedAt = nil, t.now
				t.next.DueAt, t.next.ExecuteBefore, t.next.Dispatch = time.Time{}, time.Time{}, 0
				t.out.Dispatch, t.out.Finished = false, true
			}
		}},
		{name: "the ending of the operation is lost", want: "the ending of the operation is lost", decided: func(t *spoiled) {
			if t.before.Ending != nil && t.next.Status == event.InProgress {
				t.next.Ending = nil
			}
		}},
		{name: "the finally stage shares a cursor with the command in flight", want: "cursor", decided: func(t *spoiled) {
			if t.next.Ending != nil && t.before.Ending == nil && t.before.InFlight() {
				t.next.Cursor = t.before.Cursor
			}
		}},
		{name: "the finally stage has no extra time", want: "the deadline is", decided: func(t *spoiled) {
			if t.next.Status == event.InProgress {
				t.next.Deadline = t.next.StartedAt.Add(t.p.Timeout)
			}
		}},
		{name: "the finally stage replaces the reason", want: "has become", decided: func(t *spoiled) {
			if t.before.Ending != nil && t.next.Status.Final() {
				t.next.Error = &event.Error{Message: "the finally stage is done"}
			}
		}},
		{name: "a stage attempt is counted twice", decided: func(t *spoiled) {
			if t.next.StageAttempt > t.before.StageAttempt && t.before.StageAttempt > 0 {
				t.next.StageAttempt = t.before.StageAttempt
			}
		}},
		{name: "the memory of a finished stage is kept", want: "is not purged", decided: func(t *spoiled) {
			t.out.PurgeStages = nil
		}},
		{name: "the history lacks the end of an operation", want: "the history of operation", decided: func(t *spoiled) {
			if n := len(t.out.History); t.next.Status.Final() && n > 1 {
				t.out.History = t.out.History[:n-1]
			}
		}},
	}
}

// outsideBugs are bugs in the code around the engine.
func outsideBugs() []planted {
	return []planted{
		{name: "a result is acknowledged before it is committed", want: "acknowledged but not applied", bug: bugAckBeforeCommit},
		{name: "a command is published before it is committed", want: "was never committed", bug: bugPublishBeforeCommit},
		{name: "a result is acknowledged before its command is published", want: "are acknowledged before command", bug: bugAckBeforePublish},
		{name: "a request is acknowledged before it is accepted", want: "is acknowledged before it is accepted", bug: bugRequestAckedFirst},
		{name: "a stale message does not publish the command again", want: "are acknowledged before command", bug: bugNoRepublish},
		{name: "the dispatch count is not in the message id", want: "is dropped as a duplicate", bug: bugNoDispatchInID},
		{name: "a row is written without a version check", want: "", bug: bugNoCompareAndSet},
		{name: "a cached row is treated as current", want: "", bug: bugStaleFromTheCache},
		{name: "the sweep does not find pending operations", want: "do not end", bug: bugNoSweepOfPending},
		{name: "the sweep does not find due operations", want: "do not end", bug: bugNoSweepOfDue},
		{name: "the sweep does not find unanswered commands", want: "do not end", bug: bugNoSweepOfUnanswered},
		{name: "a freed instance starts no operation", want: "and is not started", bug: bugNoWakeUp},
		{name: "an ended operation keeps its instance", want: "in progress and", bug: bugInstanceNotFreed},
		{name: "an ended operation drops its details", want: "have lost", bug: bugDetailsNotLeft},
		{name: "an instance has two operations in progress", want: "in progress", bug: bugTwoOfAnInstance},
		{name: "limits of operations are ignored", want: "allows at most", bug: bugNoLimit},
		{name: "a limit of everything applies to each type", want: "allows at most", bug: bugLimitOfEachType},
		{name: "an ended operation keeps its place in a limit", want: "do not end", bug: bugPlaceNotFreed},
		{name: "a global account starves", want: "", bug: bugNoTurns},
		{name: "upgrades start before operations of customers", want: "of a customer", bug: bugUpgradesFirst},
		{name: "an operation overtakes another of its instance", want: "overtakes", bug: bugOvertaking},
		{name: "a deprovisioning cancels nothing", want: "waits for", bug: bugNoPreemption},
		{name: "an old operation is retried", want: "although the instance has a newer one", bug: bugRetryOfAnOldOne},
		{name: "a start publishes nothing again", want: "is not on the bus after a start", bug: bugNothingAtAStart},
		{name: "a start uses the first sending of commands", first: 470, want: "is not on the bus after a start", bug: bugFirstSentAtAStart},
		{name: "facts without a message are dropped", want: "published", bug: bugNoFactsNote},
		{name: "a redelivered message does not publish its facts again", want: "was never published", bug: bugNoFactsAgain},
	}
}

func (b *planted) apply(p *process.Process, s engine.State, e engine.Event, now time.Time) (engine.State, engine.Effects, error) {
	told, given := e, s
	if b.told != nil {
		told = b.told(&given, e)
	}
	if b.read != nil {
		p = b.read(p)
	}
	next, out, err := engine.Apply(p, given, told, now)
	if err == nil && b.decided != nil {
		b.decided(&spoiled{p: p, before: s, event: e, next: &next, out: &out, now: now})
	}
	return next, out, err
}

// TestSimulation_PlantedBugs_AreFound checks that the simulation can fail.
func TestSimulation_PlantedBugs_AreFound(t *testing.T) {
	t.Parallel()
	bugs := plantedBugs()
	lines := make([]string, len(bugs))
	shared := &pools{}
	t.Run("all", func(t *testing.T) {
		for i := range bugs {
			t.Run(bugs[i].name, func(t *testing.T) {
				t.Parallel()
				lines[i] = findBug(t, &bugs[i], shared)
			})
		}
	})
	t.Logf("planted bugs: the seed that finds it, choices before and after shrinking\n%s", strings.Join(lines, "\n"))
}

// plantedSchedules is the maximum number of schedules to find a bug; far fewer than run without one.
const plantedSchedules = 10_000

func findBug(t *testing.T, b *planted, shared *pools) string {
	r := newRunner(shared)
	r.apply, r.bug = b.apply, b.bug
	defer r.threads.close()
	for seed := b.first; seed < b.first+plantedSchedules; seed++ {
		s := newSchedule(seed)
		v := r.run(s, nil)
		if v == nil {
			continue
		}
		if !strings.Contains(v.text, b.want) {
			t.Errorf("found by %q in seed %d, want %q", v.text, seed, b.want)
		}
		small := r.shrink(s, v)
		again := r.run(small, nil)
		if again == nil || again.format != v.format || len(small.choices) > len(s.choices) {
			t.Errorf("the shrunk schedule of seed %d gives %v, want %q\n%s", seed, again, v.text, small)
		}
		return fmt.Sprintf("  %-62s %6d %5d %5d  %s", b.name, seed, len(s.choices), len(small.choices), v.format)
	}
	t.Errorf("not found in %d schedules", plantedSchedules)
	return b.name + " was not found"
}
