package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

const (
	// noWorkerRecheck is how long an unanswered command of a step without a live worker is left at most before the next look.
	noWorkerRecheck = 10 * time.Second
	// stageLostPause keeps a stage whose memory is lost from being repeated in a hot loop.
	stageLostPause = time.Second
)

// Component and reasons of the errors that the engine itself finds (docs/contracts/processes.md#components-and-reasons-of-errors).
const (
	component         = "keb"
	reasonTimeout     = "err_keb_timeout"
	reasonCondition   = "err_keb_condition"
	reasonDetails     = "err_keb_details"
	reasonTooLarge    = "err_keb_too_large"
	reasonUnspecified = "err_keb_internal"
	reasonCancelled   = "err_keb_cancelled"
)

// Sentinels of Apply. The state is unchanged with each.
var (
	// ErrStale: the result belongs to an older command. If a command is out, it should be published once more.
	ErrStale = errors.New("the result belongs to an older command")
	// ErrNotPossible: the state of the operation does not allow what was asked for.
	ErrNotPossible = errors.New("not possible")
	// ErrNobody is an ErrNotPossible: a command was lost, and nobody serves its step.
	ErrNobody = fmt.Errorf("%w: no worker serves the step", ErrNotPossible)
)

// Apply is the transition function. It leaves s and what it refers to untouched. With ErrStale and ErrNotPossible nothing
// has happened; there are no other errors.
func Apply(p *process.Process, s State, e Event, now time.Time) (State, Effects, error) {
	m := machine{p: p, s: s, now: now}
	if err := m.apply(e); err != nil {
		return s, Effects{}, err
	}
	m.complete()
	return m.s, m.out, nil
}

// machine is one application of Apply.
type machine struct {
	p     *process.Process
	s     State
	now   time.Time
	out   Effects
	steps []*event.StepFinished
}

func (m *machine) apply(e Event) error {
	switch e := e.(type) {
	case Start:
		return m.start(e)
	case Result:
		return m.result(e)
	case Due:
		return m.due(e)
	case Unsendable:
		return m.unsendable(e)
	case Cancel:
		return m.cancel(e)
	case Retry:
		return m.retryOperation(e)
	case SkipStep:
		return m.skipStep(e)
	default:
		return fmt.Errorf("%w: unknown event %T", ErrNotPossible, e)
	}
}

func (m *machine) start(e Start) error {
	if m.s.Status != event.Pending {
		return fmt.Errorf("%w: the operation is %s, only a pending one can start", ErrNotPossible, m.s.Status)
	}
	m.s.Status = event.InProgress
	m.s.StartedAt, m.s.StageStartedAt = m.now, m.now
	m.s.Deadline = m.now.Add(m.p.Timeout)
	var left []string
	message := ""
	if m.s.Details, left = event.FitDetails(e.Details); len(left) > 0 {
		message = "left out of the saved data, which was too large: " + strings.Join(left, ", ")
	}
	m.s.Completed = e.Completed
	m.s.StageAttempt++
	m.s.Error = nil
	m.record(Entry{Kind: KindStarted, Stage: -1, Step: -1, Message: message, StartedAt: m.now, FinishedAt: m.now})
	m.fact(event.TypeOperationStarted, &event.OperationStarted{Fact: m.newFact()})
	m.advance()
	return nil
}

// result folds the answer of a worker. A result that does not carry the cursor of the command that is out is stale.
func (m *machine) result(r Result) error {
	if !m.s.InFlight() || r.Cursor != m.s.Cursor {
		return ErrStale
	}
	stage, step := m.s.current(m.p)
	if r.StartedAt.IsZero() {
		r.StartedAt = m.now
	}
	if r.FinishedAt.IsZero() {
		r.FinishedAt = m.now
	}
	m.s.ExecuteBefore, m.s.Dispatch = time.Time{}, 0
	m.s.StageMemory = m.s.StageMemory || r.StageMemory
	m.s.Message, m.s.Error = r.Message, r.Error

	details, err := mergeDetails(m.s.Details, step.Worker, r.Details)
	if err != nil {
		r.Outcome, r.Error = event.OutcomeFailed, &event.Error{Component: component, Reason: reasonDetails, Message: err.Error()}
	} else {
		m.s.Details = details
	}

	switch r.Outcome {
	case event.OutcomeSucceeded:
		m.recordStep(r, event.OutcomeSucceeded, nil)
		m.completed()
	case event.OutcomeSkipped:
		m.recordStep(r, event.OutcomeSkipped, nil)
		m.completed()
	case event.OutcomeNotCompleted:
		m.passOver(r)
	case event.OutcomeRetry:
		m.retryStep(r, step)
		return nil
	case event.OutcomeStageLost:
		m.stageLost(r, stage)
		return nil
	default: // failed, and whatever a newer worker may say
		if r.Error == nil {
			r.Error = &event.Error{Component: step.Worker, Reason: reasonUnspecified, Message: "the step failed without saying why"}
		}
		m.s.Error = r.Error
		if step.OnFailure != process.Skip {
			m.recordStep(r, event.OutcomeFailed, nil)
			m.fail(*r.Error)
			return nil
		}
		m.passOver(r)
	}
	if m.cancelled() {
		return nil
	}
	m.advance()
	return nil
}

// pass leaves the current step behind, with its budget.
func (m *machine) pass() {
	_, step := m.s.current(m.p)
	m.dropTry(step.Name)
	m.nextStep()
}

// completed leaves the current step behind as done, although an earlier attempt of the stage may have passed over it.
func (m *machine) completed() {
	_, step := m.s.current(m.p)
	if i := slices.Index(m.s.NotCompleted, step.Name); i >= 0 {
		m.s.NotCompleted = slices.Concat(m.s.NotCompleted[:i], m.s.NotCompleted[i+1:])
	}
	m.pass()
}

// passOver goes on although the current step is not completed.
func (m *machine) passOver(r Result) {
	_, step := m.s.current(m.p)
	m.recordStep(r, event.OutcomeNotCompleted, nil)
	m.notCompleted(step)
	// It has not succeeded, so its budget stays: a repeated stage tries it once more, and not for as long again.
	m.keepTry(step.Name)
	m.nextStep()
}

func (m *machine) notCompleted(step *process.Step) {
	if !slices.Contains(m.s.NotCompleted, step.Name) {
		m.s.NotCompleted = append(slices.Clone(m.s.NotCompleted), step.Name)
	}
}

func (m *machine) nextStep() {
	m.s.Step++
	m.s.StepAttempt = 0
	m.s.FirstTriedAt = time.Time{}
}

// retryStep lets the operation wait for its retry, unless the step's budget is spent or the operation was cancelled.
func (m *machine) retryStep(r Result, step *process.Step) {
	b := m.budgetOf(&r, step)
	after := r.RetryAfter
	if after <= 0 {
		after = b.every
	}
	at := m.now.Add(after)
	if b.timeout > 0 {
		end := b.since.Add(b.timeout)
		if !m.now.Before(end) {
			m.spent(r, step, b)
			return
		}
		at = earlier(at, end) // the last try is at the end of the budget
	}
	at = earlier(at, m.s.Deadline)
	m.recordStep(r, event.OutcomeRetry, &at)
	if m.cancelled() {
		return
	}
	m.s.DueAt = at
}

// spent ends the retries of a step whose budget is used up, with the last real error.
func (m *machine) spent(r Result, step *process.Step, b budget) {
	last := r.Message
	if r.Error != nil {
		last = r.Error.Message
	}
	timeout := event.Error{Component: step.Worker, Reason: reasonTimeout}
	if r.Error != nil && r.Error.Component != "" {
		timeout.Component = r.Error.Component
	}
	verb := "was retried"
	if b.waiting {
		verb = "has waited"
	}
	timeout.Message = fmt.Sprintf("%s %s for %s without success", step.Name, verb, b.timeout)
	if last != "" {
		timeout.Message += ": " + last
	}
	if e := b.earlier; e != nil {
		timeout.Message += fmt.Sprintf("; its last error was of %s: %s", e.Component, e.Message)
	}
	r.Error = &timeout
	m.s.Error = &timeout
	if step.OnTimeout != process.Skip {
		m.recordStep(r, event.OutcomeFailed, nil)
		m.fail(timeout)
		return
	}
	m.passOver(r)
	if m.cancelled() {
		return
	}
	m.advance()
}

// stageLost repeats the stage from its first step, because what the steps have put into the stage memory is gone. It is
// not the step's fault and leaves its budget alone; the deadline of the operation bounds it.
func (m *machine) stageLost(r Result, stage *process.Stage) {
	if r.Message == "" {
		m.s.Message = "the stage memory was lost; the stage " + stage.Name + " starts again"
		r.Message = m.s.Message
	}
	at := earlier(m.now.Add(stageLostPause), m.s.Deadline)
	m.recordStep(r, event.OutcomeStageLost, &at)
	if m.cancelled() {
		return
	}
	m.restartStage()
	m.s.DueAt = at
}

// due wakes the operation.
func (m *machine) due(e Due) error {
	if m.s.Status != event.InProgress {
		return fmt.Errorf("%w: the operation is %s", ErrNotPossible, m.s.Status)
	}
	at := m.s.DueAt
	if m.s.InFlight() {
		at = m.s.ExecuteBefore
	}
	if !e.LostBefore.IsZero() {
		return m.lost(e)
	}
	switch {
	case m.now.Before(at):
		return fmt.Errorf("%w: the operation is due at %s", ErrNotPossible, at)
	case m.cancelled():
	case !m.now.Before(m.s.Deadline):
		m.timeOut()
	case m.s.Waiting():
		m.resume()
	default:
		m.sendAgain(e)
	}
	return nil
}

// lost sends a command again that went down with the bus. A cancellation that was asked for goes on waiting for the result: it may hold
// ids that the next operation needs, and what was lost may have been that result.
func (m *machine) lost(e Due) error {
	if !m.s.InFlight() {
		return fmt.Errorf("%w: no command is out", ErrNotPossible)
	}
	_, step := m.s.current(m.p)
	if sent := m.s.ExecuteBefore.Add(-step.Execution); !sent.Before(e.LostBefore) {
		return fmt.Errorf("%w: the command was sent at %s, after the loss", ErrNotPossible, sent)
	}
	switch {
	case !m.now.Before(m.s.Deadline):
		m.timeOut()
		return nil
	case !e.WorkerAlive:
		return ErrNobody
	case e.ResultsOnly && m.s.ExecuteBefore.Equal(m.s.Deadline):
		// Its time does not tell any more when it was sent, and under a new number it would be sent with every look.
		return fmt.Errorf("%w: the command may have been sent again", ErrNotPossible)
	case e.ResultsOnly:
		m.s.Dispatch++
	}
	// Never earlier than before: a worker that has the command may execute it for so long.
	if limit := earlier(m.now.Add(step.Execution), m.s.Deadline); limit.After(m.s.ExecuteBefore) {
		m.s.ExecuteBefore = limit
	}
	m.out.Changed, m.out.Dispatch = true, true
	return nil
}

// resume takes up an operation that waited: the step alone, or the stage from its first step with an empty memory.
func (m *machine) resume() {
	m.s.DueAt = time.Time{}
	m.bump()
	_, step := m.s.current(m.p)
	switch {
	case m.s.StepAttempt == 0: // the stage starts again after its memory was lost
		m.advance()
	case step.Retry.Scope == process.ScopeStep:
		m.dispatch(step)
	default:
		m.restartStage()
		m.advance()
	}
}

// restartStage goes back to the first step of the current stage and keeps the budget of the step it stood at.
func (m *machine) restartStage() {
	_, step := m.s.current(m.p)
	m.keepTry(step.Name)
	m.s.Step = 0
	m.s.StepAttempt = 0
	m.s.FirstTriedAt = time.Time{}
	m.s.StageAttempt++
	m.s.StageMemory = false
}

// sendAgain repeats a command that nobody has answered, if there is somebody to answer it.
func (m *machine) sendAgain(e Due) {
	m.out.Changed = true
	_, step := m.s.current(m.p)
	if !e.WorkerAlive {
		// Waiting for a worker does not use up the budget of a step that was never tried.
		if m.s.StepAttempt == 1 {
			m.s.FirstTriedAt = m.now
		}
		m.s.ExecuteBefore = earlier(m.now.Add(min(noWorkerRecheck, step.Execution)), m.s.Deadline)
		return
	}
	m.s.Dispatch++
	m.s.ExecuteBefore = earlier(m.now.Add(step.Execution), m.s.Deadline)
	m.out.Dispatch = true
}

// unsendable fails an operation whose command cannot be sent, whatever the step says about failures: the next command would not fit
// either.
func (m *machine) unsendable(e Unsendable) error {
	if !m.s.InFlight() || e.Cursor != m.s.Cursor {
		return fmt.Errorf("%w: the command is not out", ErrNotPossible)
	}
	reason := event.Error{Component: component, Reason: reasonTooLarge, Message: e.Reason}
	var left []string
	if m.s.Details, left = event.FitDetails(m.s.Details); len(left) > 0 {
		reason.Message += "; left out of the saved data: " + strings.Join(left, ", ")
	}
	m.s.ExecuteBefore, m.s.Dispatch = time.Time{}, 0
	stage, step := m.s.current(m.p)
	if stage.Finally {
		m.giveUpFinally(step, reason)
		return nil
	}
	m.s.Error = &reason
	m.recordStep(Result{Error: &reason, StartedAt: m.now, FinishedAt: m.now}, event.OutcomeFailed, nil)
	m.fail(reason)
	return nil
}

func (m *machine) timeOut() {
	stage, step := m.s.current(m.p)
	if stage.Finally {
		m.giveUpFinally(step, event.Error{
			Component: component, Reason: reasonTimeout, Message: fmt.Sprintf("the stage %s has used up its time", process.StageFinally),
		})
		return
	}
	message := fmt.Sprintf("the operation has reached its time limit of %s in step %s of stage %s", m.p.Timeout, step.Name, stage.Name)
	if m.s.Error != nil {
		message += ": " + m.s.Error.Message
	}
	m.fail(event.Error{Component: component, Reason: reasonTimeout, Message: message})
}

func (m *machine) cancel(e Cancel) error {
	if m.s.Status.Final() {
		return fmt.Errorf("%w: the operation has ended as %s", ErrNotPossible, m.s.Status)
	}
	if m.inFinally() {
		return fmt.Errorf("%w: the operation is ending, only its stage %s still runs", ErrNotPossible, process.StageFinally)
	}
	if m.s.CancelReason == "" {
		m.s.CancelReason = e.Reason
	}
	m.out.Changed = true
	if m.s.InFlight() {
		return nil // the result of the command that is out may hold ids that the next operation needs
	}
	m.cancelled()
	return nil
}

// cancelled ends the operation if its cancellation was asked for. In the finally stage there is nothing left to cancel.
func (m *machine) cancelled() bool {
	if m.s.CancelReason == "" || m.s.Ending != nil {
		return false
	}
	m.conclude(event.Cancelled, event.Error{Component: component, Reason: reasonCancelled, Message: m.s.CancelReason})
	return true
}

// retryOperation makes a failed operation pending again, at the first step of the stage in which it failed.
func (m *machine) retryOperation(e Retry) error {
	if m.s.Status != event.Failed {
		return fmt.Errorf("%w: the operation is %s, only a failed one can be retried", ErrNotPossible, m.s.Status)
	}
	m.s.Status = event.Pending
	m.s.FinishedAt = time.Time{}
	m.dropTries() // the operator grants new budgets
	m.s.Step, m.s.StepAttempt, m.s.FirstTriedAt = 0, 0, time.Time{}
	m.s.StageMemory = false
	m.s.CancelReason = ""
	message := "retried by " + e.By
	m.record(Entry{Kind: KindRetried, Stage: -1, Step: -1, Message: message, StartedAt: m.now, FinishedAt: m.now})
	return nil
}

func (m *machine) skipStep(e SkipStep) error {
	if m.s.Status != event.InProgress {
		return fmt.Errorf("%w: the operation is %s, a step can be skipped only while it is in progress", ErrNotPossible, m.s.Status)
	}
	_, step := m.s.current(m.p)
	if step.Name != e.Step {
		return fmt.Errorf("%w: the operation is at step %s, not %s", ErrNotPossible, step.Name, e.Step)
	}
	m.s.DueAt, m.s.ExecuteBefore, m.s.Dispatch = time.Time{}, time.Time{}, 0
	m.recordStep(Result{Message: "skipped by " + e.By, StartedAt: m.now, FinishedAt: m.now}, event.OutcomeSkipped, nil)
	m.notCompleted(step)
	m.pass()
	if m.cancelled() {
		return nil
	}
	m.advance()
	return nil
}

// advance goes on from the current position to the next step that a worker executes, or to the end.
func (m *machine) advance() {
	input := process.Input{Operation: &m.s.Operation, Details: m.s.Details}
	for {
		stage, step := m.s.current(m.p)
		if stage == nil {
			m.concluded()
			return
		}
		if step == nil {
			m.finishStage(stage)
			continue
		}
		local := Result{StartedAt: m.now, FinishedAt: m.now}
		if slices.Contains(m.s.Completed, step.Name) {
			local.Message = "completed by an earlier operation"
			m.skipHere(local)
			continue
		}
		runs, err := step.Runs(&input)
		switch {
		case err != nil:
			local.Error = &event.Error{Component: component, Reason: reasonCondition, Message: err.Error()}
			m.s.Error = local.Error
			if step.OnFailure != process.Skip {
				m.recordStep(local, event.OutcomeFailed, nil)
				m.fail(*local.Error)
				return
			}
			m.passOver(local)
		case !runs:
			local.Message = "condition is false: " + step.When
			m.skipHere(local)
		case step.Worker == process.WorkerOrchestrator:
			m.s.StepAttempt++
			m.recordStep(local, event.OutcomeSucceeded, nil)
			m.completed()
		default:
			m.dispatch(step)
			return
		}
	}
}

func (m *machine) skipHere(r Result) {
	m.recordStep(r, event.OutcomeSkipped, nil)
	m.completed()
}

func (m *machine) finishStage(stage *process.Stage) {
	m.fact(event.TypeStageFinished, &event.StageFinished{Fact: m.newFact(), Stage: stage.Name, StageAttempt: m.s.StageAttempt})
	if m.s.StageMemory || m.s.StageAttempt > 1 {
		m.out.PurgeStages = append(m.out.PurgeStages, stage.Name)
	}
	if !m.s.StageStartedAt.IsZero() { // else an earlier release has begun it, and nobody knows when
		m.out.Stages = append(m.out.Stages, StageEnd{Stage: m.s.Stage, Took: since(m.s.StageStartedAt, m.now)})
	}
	m.s.StageStartedAt = m.now
	if stage.Finally {
		m.leaveFinally()
	}
	m.s.Stage++
	if m.s.Stage == m.p.Finally() {
		m.grantFinally()
	}
	m.s.Step, m.s.StepAttempt, m.s.FirstTriedAt = 0, 0, time.Time{}
	m.s.StageAttempt = 1
	if m.s.Stage == m.p.Finally() {
		m.s.StageAttempt = m.nextFinally()
	}
	m.s.StageMemory = false
	m.dropTries()
}

// dispatch sends the first command of the next attempt of a step.
func (m *machine) dispatch(step *process.Step) {
	if m.s.StepAttempt == 0 {
		if try, ok := m.s.Tries[step.Name]; ok {
			m.s.StepAttempt, m.s.FirstTriedAt = try.Attempts, try.FirstTriedAt
		} else {
			m.s.FirstTriedAt = m.now
		}
	}
	m.s.StepAttempt++
	m.s.Dispatch, m.s.SentAt = 1, m.now
	m.s.ExecuteBefore = earlier(m.now.Add(step.Execution), m.s.Deadline)
	m.out.Dispatch = true
}

func (m *machine) keepTry(step string) {
	if m.s.StepAttempt == 0 || m.s.FirstTriedAt.IsZero() {
		return
	}
	try := m.s.Tries[step]
	try.FirstTriedAt, try.Attempts = m.s.FirstTriedAt, m.s.StepAttempt
	m.setTry(step, try)
}

func (m *machine) setTry(step string, try Try) {
	tries := maps.Clone(m.s.Tries)
	if tries == nil {
		tries = map[string]Try{}
	}
	tries[step] = try
	m.s.Tries = tries
}

func (m *machine) dropTry(step string) {
	if _, ok := m.s.Tries[step]; !ok {
		return
	}
	tries := maps.Clone(m.s.Tries)
	delete(tries, step)
	if len(tries) == 0 {
		tries = nil
	}
	m.s.Tries = tries
}

func (m *machine) fail(reason event.Error) { m.conclude(event.Failed, reason) }

// finish makes the operation failed or cancelled.
func (m *machine) finish(status event.OperationState, reason event.Error) {
	stage, step := m.s.current(m.p)
	m.end(status)
	m.s.Error = &reason
	if status == event.Cancelled {
		m.record(Entry{
			Kind: KindCancelled, Stage: -1, Step: -1, Message: reason.Message, StartedAt: m.now, FinishedAt: m.now,
		})
		m.fact(event.TypeOperationCancelled, &event.OperationCancelled{
			Fact: m.newFact(), Reason: reason.Message, Details: m.s.Details,
		})
		return
	}
	failed := event.OperationFailed{Error: reason, Details: m.s.Details}
	if step != nil {
		failed.Stage, failed.Step = stage.Name, step.Name
	}
	m.record(Entry{Kind: KindFailed, Stage: m.s.Stage, Step: m.s.Step, Error: &reason, StartedAt: m.now, FinishedAt: m.now})
	failed.Fact = m.newFact()
	m.fact(event.TypeOperationFailed, &failed)
}

// end makes the operation final. The position stays where it was, for a retry by an operator.
func (m *machine) end(status event.OperationState) {
	m.s.Status = status
	m.s.FinishedAt = m.now
	m.s.DueAt, m.s.ExecuteBefore, m.s.Dispatch = time.Time{}, time.Time{}, 0
	m.out.Finished = true
	if m.s.StageMemory || m.s.StageAttempt > 1 {
		m.out.PurgeStages = append(m.out.PurgeStages, "")
	}
}

// complete fills in what is known only at the end of a transition.
func (m *machine) complete() {
	next := m.s.Position(m.p)
	for _, f := range m.steps {
		f.Next = next
	}
	for _, f := range m.out.Facts {
		if started, ok := f.Payload.(*event.OperationStarted); ok {
			started.Next = next
		}
	}
}

// bump is a transition that leaves no line in the history.
func (m *machine) bump() {
	m.s.Cursor++
	m.out.Changed = true
}

func (m *machine) record(e Entry) {
	m.bump()
	e.Cursor = m.s.Cursor
	m.out.History = append(m.out.History, e)
}

// recordStep records one execution of the current step, in the history and as a fact.
func (m *machine) recordStep(r Result, outcome event.Outcome, retryAt *time.Time) {
	stage, step := m.s.current(m.p)
	m.record(Entry{
		Kind: KindStep, Stage: m.s.Stage, Step: m.s.Step, StageAttempt: m.s.StageAttempt, StepAttempt: m.s.StepAttempt,
		Outcome: outcome, WorkerVersion: r.Worker.Version, Message: r.Message, Error: r.Error,
		StartedAt: r.StartedAt, FinishedAt: r.FinishedAt, Took: since(m.s.FirstTriedAt, m.now),
	})
	finished := &event.StepFinished{
		Fact: m.newFact(),
		Position: event.Position{
			Stage: stage.Name, Step: step.Name, StageAttempt: m.s.StageAttempt, StepAttempt: m.s.StepAttempt,
		},
		Worker: event.Worker{Name: step.Worker, Version: r.Worker.Version}, Outcome: outcome, Message: r.Message, Error: r.Error,
		RetryAt: retryAt, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
	}
	m.steps = append(m.steps, finished)
	m.fact(event.TypeStepFinished, finished)
}

func (m *machine) newFact() event.Fact {
	return event.Fact{
		OperationID: m.s.Operation.ID, OperationType: m.s.Operation.Type, InstanceID: m.s.Operation.InstanceID,
		Cursor: m.s.Cursor, OccurredAt: m.now,
	}
}

func (m *machine) fact(t event.Type, payload any) {
	m.out.Facts = append(m.out.Facts, Fact{Type: t, Cursor: m.s.Cursor, OccurredAt: m.now, Payload: payload})
}

// since is the time from a to b; zero when a is not set, or later: the clock of another orchestrator may have set it.
func since(a, b time.Time) time.Duration {
	if a.IsZero() {
		return 0
	}
	return max(b.Sub(a), 0)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
