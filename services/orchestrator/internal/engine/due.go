package engine

import (
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// due handles an operation whose time has come.
func (m *machine) due(e Due) error {
	if m.s.Status != event.InProgress {
		return fmt.Errorf("%w: the operation is %s", ErrNotPossible, m.s.Status)
	}
	if m.s.Held() {
		return fmt.Errorf("%w: the operation is held", ErrNotPossible)
	}
	at := m.s.DueAt
	if m.s.InFlight() {
		at = m.s.ExecuteBefore
	}
	if !e.LostBefore.IsZero() {
		return m.resendLost(e)
	}
	if m.now.Before(at) {
		return fmt.Errorf("%w: the operation is due at %s", ErrNotPossible, at)
	}
	if m.s.InFlight() {
		m.noteUnanswered()
	}
	switch {
	case m.cancelIfRequested():
	case !m.now.Before(m.s.Deadline):
		m.timeOut()
	case m.s.Waiting():
		m.resume()
	default:
		m.unanswered(e)
	}
	return nil
}

// resendLost sends a command again that the bus has lost. A requested cancellation still awaits the result: the result may hold
// ids that the next operation needs, and it may be the result that was lost.
func (m *machine) resendLost(e Due) error {
	if !m.s.InFlight() {
		return fmt.Errorf("%w: no command is in flight", ErrNotPossible)
	}
	_, step := m.s.current(m.p)
	if sent := m.s.ExecuteBefore.Add(-m.s.Extended - step.Execution); !sent.Before(e.LostBefore) {
		return fmt.Errorf("%w: the command was sent at %s, after the loss", ErrNotPossible, sent)
	}
	switch {
	case !m.now.Before(m.s.Deadline):
		m.timeOut()
		return nil
	case !e.WorkerAlive:
		return ErrNoWorker
	case e.ResultsOnly:
		m.s.Dispatch++
	}
	// The limit never moves backwards: a worker that has the command may execute it until the old limit.
	if limit := earlier(m.now.Add(step.Execution), m.s.Deadline); limit.After(m.s.ExecuteBefore) {
		m.s.ExecuteBefore, m.s.Extended = limit, 0
	}
	m.setExtended(step.Execution)
	m.out.Changed, m.out.Dispatch = true, true
	return nil
}

// resume continues an operation whose time has come.
func (m *machine) resume() {
	m.bump()
	m.repeat()
}

// repeat continues an operation that waited. It repeats the step alone, or the stage from its first step with an empty memory.
func (m *machine) repeat() {
	m.s.DueAt = time.Time{}
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

// unanswered handles a command whose execution limit has passed without a result. With a live worker it is a failed try: it counts
// against the retry budget, and the command is sent again. The command keeps its cursor, so the late result of a slow worker is still
// applied.
func (m *machine) unanswered(e Due) {
	_, step := m.s.current(m.p)
	if !e.WorkerAlive {
		m.awaitWorker(step, e.Version)
		return
	}
	r := Result{
		Error:     &event.Error{Component: step.Worker, Reason: reasonNoAnswer, Message: fmt.Sprintf("the worker has not answered within %s", step.Execution+m.s.Extended)},
		StartedAt: m.s.SentAt, FinishedAt: m.now,
	}
	m.s.Message, m.s.Error = "", r.Error
	// A command that was sent only once may have been lost, or its worker killed. The step gets one more try, whatever its budget is.
	if b := m.budgetOf(&r, step, m.s.SentAt); b.spent(m.now) && m.s.Dispatch > 1 {
		m.clearCommand()
		m.endRetries(r, step, b)
		return
	}
	m.countFailure(step, true)
	m.s.CommandCursor = m.s.AwaitedCursor()
	m.recordStep(r, event.OutcomeNoAnswer, nil)
	m.setCondition(NoAnswer, m.s.SentAt)
	m.s.Dispatch++
	m.limitExecution(step.Execution)
	m.out.Dispatch = true
}

// awaitWorker handles an unanswered command of a step without a live worker. The command is not sent again, because it would be too
// late when a worker returns. The retry budget runs, unless the step waits for its worker.
func (m *machine) awaitWorker(step *process.Step, version string) {
	if version != "" {
		version = " of version " + version
	}
	m.out.Changed = true
	if step.NoWorker == process.NoWorkerWait {
		if m.s.StepAttempt == 1 {
			m.s.FirstTriedAt = m.now
		}
	} else {
		r := Result{
			Error:     &event.Error{Component: component, Reason: reasonNoWorker, Message: fmt.Sprintf("no live worker %s%s serves the step", step.Worker, version)},
			StartedAt: m.s.SentAt, FinishedAt: m.now,
		}
		if b := m.budgetOf(&r, step, m.s.SentAt); b.spent(m.now) {
			m.clearCommand()
			m.endRetries(r, step, b)
			return
		}
	}
	m.limitExecution(min(noWorkerRecheck, step.Execution))
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
	if m.s.Limited() {
		message += fmt.Sprintf(", which has waited for the limit %s for %s", m.s.Queue, since(m.s.LimitedSince, m.now).Round(time.Second))
	}
	if m.s.Error != nil {
		message += ": " + m.s.Error.Message
	}
	m.fail(event.Error{Component: component, Reason: reasonTimeout, Message: message})
}
