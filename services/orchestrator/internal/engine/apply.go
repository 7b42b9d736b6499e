package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

const (
	// noWorkerRecheck bounds the time until the next check of an unanswered command whose step has no live worker.
	noWorkerRecheck = 10 * time.Second
	// stageLostPause is the pause before a stage whose memory was lost is repeated. It prevents a hot loop.
	stageLostPause = time.Second
)

// Component and reasons of errors found by the engine itself (docs/contracts/processes.md#components-and-reasons-of-errors).
const (
	component         = "keb"
	reasonTimeout     = "err_keb_timeout"
	reasonCondition   = "err_keb_condition"
	reasonDetails     = "err_keb_details"
	reasonTooLarge    = "err_keb_too_large"
	reasonUnspecified = "err_keb_internal"
	reasonCancelled   = "err_keb_cancelled"
	reasonNoAnswer    = "err_keb_no_answer"
	reasonNoWorker    = "err_keb_no_worker"
)

// Errors returned by Apply. The state is unchanged with each of them.
var (
	// ErrStale means that the result belongs to an older command. If a command is in flight, the caller should publish it again.
	ErrStale = errors.New("the result belongs to an older command")
	// ErrNotPossible means that the state of the operation does not allow the event.
	ErrNotPossible = errors.New("not possible")
	// ErrNoWorker is an ErrNotPossible: a command was lost, and no live worker serves its step.
	ErrNoWorker = fmt.Errorf("%w: no worker serves the step", ErrNotPossible)
)

// Apply is the transition function. It does not modify s or anything that s refers to. Every error wraps ErrStale or
// ErrNotPossible.
func Apply(p *process.Process, s State, e Event, now time.Time) (State, Effects, error) {
	m := machine{p: p, s: s, now: now}
	if err := m.apply(e); err != nil {
		return s, Effects{}, err
	}
	m.complete()
	return m.s, m.out, nil
}

// machine is the working state of one call of Apply.
type machine struct {
	p     *process.Process
	s     State
	now   time.Time
	out   Effects
	steps []*event.StepFinished
	// saved is the change of the saved data that the next history entry records.
	saved map[string]Saved
}

func (m *machine) apply(e Event) error {
	switch e := e.(type) {
	case Start:
		return m.start(e)
	case Result:
		return m.result(e)
	case Due:
		return m.due(e)
	case Signal:
		return m.signal(e)
	case Unsendable:
		return m.unsendable(e)
	case Hold:
		return m.hold(e)
	case Release:
		return m.release()
	case Slow:
		return m.slow(e)
	case Extend:
		return m.extend(e)
	case Park:
		return m.park(e)
	case Grant:
		return m.grant(e)
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
	if m.s.Held() {
		return fmt.Errorf("%w: the operation is held", ErrNotPossible)
	}
	m.s.Status = event.InProgress
	again := !m.s.StartedAt.IsZero()
	m.s.StartedAt, m.s.StageStartedAt = m.now, m.now
	m.s.Deadline = m.now.Add(m.p.Timeout)
	var removed []string
	message, before := "", m.s.Details
	if m.s.Details, removed = event.FitDetails(e.Details); len(removed) > 0 {
		message = "left out of the saved data, which was too large: " + strings.Join(removed, ", ")
	}
	m.saved = map[string]Saved{} // marks that changes are recorded
	if again {
		m.saved = difference(before, m.s.Details)
	}
	m.s.UnansweredAt = e.UnansweredAt
	if m.s.Operation.Type == event.Deprovision && !e.Removed && m.s.UnsettledUntil().IsZero() {
		m.s.UnansweredAt = time.Time{} // nothing can take effect any more, and what this deprovisioning finds is not late
	}
	m.s.Completed = e.Completed
	if _, repeated := m.s.Tries[repeatedTries]; repeated {
		m.s.Completed = withoutStages(e.Completed, m.p.Stages[m.s.Stage:])
	}
	m.s.StageAttempt++
	m.s.Error = nil
	m.record(Entry{Kind: KindStarted, Stage: -1, Step: -1, Message: message, StartedAt: m.now, FinishedAt: m.now})
	m.fact(event.TypeOperationStarted, &event.OperationStarted{Fact: m.newFact()})
	m.advance()
	return nil
}

// result applies the result of a worker. A result without the cursor of the command in flight is stale.
func (m *machine) result(r Result) error {
	if !m.s.Awaits() || r.Cursor != m.s.AwaitedCursor() {
		return ErrStale
	}
	m.endHold()
	m.endLimit()
	stage, step := m.s.current(m.p)
	if m.mayTakeEffectLate(&r, step) {
		m.noteUnanswered()
	}
	if r.StartedAt.IsZero() {
		r.StartedAt = m.now
	}
	if r.FinishedAt.IsZero() {
		r.FinishedAt = m.now
	}
	m.clearCommand()
	m.s.StageMemory = m.s.StageMemory || r.StageMemory
	if m.s.removesLateEffects() {
		r.Message = withLateEffects(r.Message, r.Removed)
	}
	if !m.comesBackTo(r) {
		m.s.Message, m.s.Error = r.Message, r.Error
	}

	details, saved, err := mergeDetails(m.s.Details, step.Worker, r.Details)
	if err != nil {
		r.Outcome, r.Error = event.OutcomeFailed, &event.Error{Component: component, Reason: reasonDetails, Message: err.Error()}
	} else {
		m.s.Details, m.saved = details, saved
	}

	switch r.Outcome {
	case event.OutcomeSucceeded:
		m.recordStep(r, event.OutcomeSucceeded, nil)
		m.completeStep()
	case event.OutcomeSkipped:
		m.recordStep(r, event.OutcomeSkipped, nil)
		m.completeStep()
	case event.OutcomeNotCompleted:
		m.skipNotCompleted(r)
	case event.OutcomeRetry:
		m.retryStep(r, step)
		return nil
	case event.OutcomeStageLost:
		m.stageLost(r, stage)
		return nil
	default: // failed, or an outcome that this release does not know
		if r.Error == nil {
			r.Error = &event.Error{Component: step.Worker, Reason: reasonUnspecified, Message: "the step failed without an error message"}
		}
		m.s.Error = r.Error
		if step.OnFailure != process.Skip {
			m.recordStep(r, event.OutcomeFailed, nil)
			m.fail(*r.Error)
			return nil
		}
		m.skipNotCompleted(r)
	}
	if m.cancelIfRequested() {
		return nil
	}
	m.advance()
	return nil
}

// comesBackTo reports whether r is of a step that is repeated on the way to the step that fails. It does not replace the error of that step.
func (m *machine) comesBackTo(r Result) bool {
	failing := m.s.Condition == Failing || m.s.Condition == NoAnswer
	return failing && m.s.Step < m.s.ConditionStep && (r.Outcome == event.OutcomeSucceeded || r.Outcome == event.OutcomeSkipped)
}

// clearCommand records that no command is decided.
func (m *machine) clearCommand() {
	m.s.ExecuteBefore, m.s.Extended, m.s.Dispatch, m.s.CommandCursor = time.Time{}, 0, 0, 0
	m.s.Queue, m.s.LimitedSince, m.s.Granted = "", time.Time{}, nil
}

// leaveStep moves to the next step and drops the budget of the current one.
func (m *machine) leaveStep() {
	_, step := m.s.current(m.p)
	m.dropTry(step.Name)
	m.nextStep()
}

// completeStep marks the current step as completed and moves to the next one. An earlier attempt of the stage may have left the
// step not completed.
func (m *machine) completeStep() {
	_, step := m.s.current(m.p)
	if i := slices.Index(m.s.NotCompleted, step.Name); i >= 0 {
		m.s.NotCompleted = slices.Concat(m.s.NotCompleted[:i], m.s.NotCompleted[i+1:])
	}
	m.leaveStep()
}

// skipNotCompleted records the current step as not completed and moves to the next one.
func (m *machine) skipNotCompleted(r Result) {
	_, step := m.s.current(m.p)
	m.recordStep(r, event.OutcomeNotCompleted, nil)
	m.markNotCompleted(step)
	// The step has not succeeded, so it keeps its budget: a repeated stage tries it once instead of granting a new budget.
	m.keepTry(step.Name)
	m.nextStep()
}

func (m *machine) markNotCompleted(step *process.Step) {
	if !slices.Contains(m.s.NotCompleted, step.Name) {
		m.s.NotCompleted = append(slices.Clone(m.s.NotCompleted), step.Name)
	}
}

func (m *machine) nextStep() {
	if m.s.Step == m.s.ConditionStep {
		m.clearCondition()
	}
	m.dropEvent()
	m.s.Step++
	m.s.StepAttempt = 0
	m.s.FirstTriedAt = time.Time{}
}

// advance moves from the current position to the next step that a worker executes, or ends the operation.
func (m *machine) advance() {
	input := process.Input{Operation: &m.s.Operation, Details: m.s.Details}
	for {
		stage, step := m.s.current(m.p)
		if stage == nil {
			m.finishProcess()
			return
		}
		if step == nil {
			m.finishStage(stage)
			continue
		}
		if _, skipped := m.s.Skipped[step.Name]; skipped {
			m.skipForOperator(step)
			continue
		}
		local := Result{StartedAt: m.now, FinishedAt: m.now}
		if slices.Contains(m.s.Completed, step.Name) {
			local.Message = reasonCompleted
			m.skipLocally(local)
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
			m.skipNotCompleted(local)
		case !runs:
			local.Message = reasonFalse + step.When
			m.skipLocally(local)
		case step.Worker == process.WorkerOrchestrator:
			m.s.StepAttempt++
			m.recordStep(local, event.OutcomeSucceeded, nil)
			m.completeStep()
		default:
			m.dispatch(step)
			return
		}
	}
}

// skipLocally skips the current step without a worker.
func (m *machine) skipLocally(r Result) {
	m.recordStep(r, event.OutcomeSkipped, nil)
	m.completeStep()
}

func (m *machine) finishStage(stage *process.Stage) {
	m.fact(event.TypeStageFinished, &event.StageFinished{Fact: m.newFact(), Stage: stage.Name, StageAttempt: m.s.StageAttempt})
	if m.s.StageMemory || m.s.StageAttempt > 1 {
		m.out.PurgeStages = append(m.out.PurgeStages, stage.Name)
	}
	if !m.s.StageStartedAt.IsZero() { // an earlier release did not record the start
		m.out.Stages = append(m.out.Stages, StageEnd{Stage: m.s.Stage, Took: since(m.s.StageStartedAt, m.now)})
	}
	m.s.StageStartedAt = m.now
	m.keepAttempts(stage)
	m.s.Stage++
	if m.s.Stage == m.p.Finally() {
		m.extendDeadlineForFinally()
	}
	m.s.Step, m.s.StepAttempt, m.s.FirstTriedAt = 0, 0, time.Time{}
	m.s.StageAttempt = m.nextAttempt()
	m.s.StageMemory = false
	m.dropTries()
	m.s.Skipped, m.s.Events = nil, nil
}

// dispatch starts the next attempt of a step and sends its first command.
func (m *machine) dispatch(step *process.Step) {
	if m.s.StepAttempt == 0 {
		if try, ok := m.s.Tries[step.Name]; ok {
			m.s.StepAttempt, m.s.FirstTriedAt = try.Attempts, try.FirstTriedAt
		} else {
			m.s.FirstTriedAt = m.now
		}
	}
	m.s.StepAttempt++
	m.s.Dispatch, m.s.CommandCursor, m.s.SentAt = 1, 0, m.now
	m.limitExecution(step.Execution)
	m.out.Dispatch = true
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
