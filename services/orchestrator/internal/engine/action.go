package engine

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// unsendable fails an operation whose command cannot be sent. It ignores onFailure, because the next command would be too large
// as well.
func (m *machine) unsendable(e Unsendable) error {
	if !m.s.InFlight() || e.Cursor != m.s.Cursor {
		return fmt.Errorf("%w: the command is not in flight", ErrNotPossible)
	}
	reason := event.Error{Component: component, Reason: reasonTooLarge, Message: e.Reason}
	var removed []string
	before := m.s.Details
	if m.s.Details, removed = event.FitDetails(before); len(removed) > 0 {
		m.saved = difference(before, m.s.Details)
		reason.Message += "; left out of the saved data: " + strings.Join(removed, ", ")
	}
	m.clearCommand()
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

func (m *machine) cancel(e Cancel) error {
	if m.s.Status.Final() {
		return fmt.Errorf("%w: the operation has ended as %s", ErrNotPossible, m.s.Status)
	}
	if e.Pending && m.s.Status != event.Pending {
		return fmt.Errorf("%w: the operation has started", ErrNotPossible)
	}
	if m.inFinally() {
		return fmt.Errorf("%w: the operation is ending, only its stage %s still runs", ErrNotPossible, process.StageFinally)
	}
	if m.s.CancelReason == "" {
		m.s.CancelReason = e.Reason
	}
	m.out.Changed = true
	if m.s.InFlight() {
		return nil // the result of the command in flight may hold ids that the next operation needs
	}
	m.endHold()
	m.endLimit()
	m.cancelIfRequested()
	return nil
}

// cancelIfRequested ends the operation if its cancellation was requested, and reports whether it did. The finally stage is not
// cancelled.
func (m *machine) cancelIfRequested() bool {
	if m.s.CancelReason == "" || m.s.Ending != nil {
		return false
	}
	m.conclude(event.Cancelled, event.Error{Component: component, Reason: reasonCancelled, Message: m.s.CancelReason})
	return true
}

// skipForOperator skips the current step, which an operator has skipped in this attempt of the stage or in an earlier one.
func (m *machine) skipForOperator(step *process.Step) {
	m.recordStep(Result{Message: "skipped by " + m.s.Skipped[step.Name], StartedAt: m.now, FinishedAt: m.now}, event.OutcomeSkipped, nil)
	m.markNotCompleted(step)
	m.leaveStep()
}

// retryOperation makes a failed operation pending again, at the first step of the stage that failed or of an earlier one, or at a later step.
func (m *machine) retryOperation(e Retry) error {
	stage, step, err := retryPosition(m.p, &m.s, e)
	if err != nil {
		return err
	}
	message, loses := "retried by "+e.By, losesMemory(m.p, &m.s, stage, step)
	switch {
	case step > 0:
		message += " from the step " + e.Step + " of the stage " + e.Stage
	case stage < m.s.Stage:
		message += " from the stage " + m.p.Stages[stage].Name
	}
	if stage < m.s.Stage {
		message += "; run again: " + stageNames(m.p.Stages[stage:m.s.Stage+1])
		m.repeatStages()
		m.s.Stage = stage
	}
	m.s.Status = event.Pending
	m.s.FinishedAt = time.Time{}
	m.dropTries() // a retry by an operator grants new budgets
	m.s.Skipped = nil
	m.s.Step, m.s.StepAttempt, m.s.FirstTriedAt = step, 0, time.Time{}
	// The attempt is new, so its memory is empty: a step that uses it finds that it is lost, and the stage starts at its first step.
	m.s.StageMemory = loses
	m.s.CancelReason = ""
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
	if m.s.InFlight() {
		m.noteUnanswered()
	}
	m.endHold()
	m.endLimit()
	m.s.DueAt = time.Time{}
	m.clearCommand()
	skipped := maps.Clone(m.s.Skipped)
	if skipped == nil {
		skipped = map[string]string{}
	}
	skipped[step.Name] = e.By
	m.s.Skipped = skipped
	m.skipForOperator(step)
	if m.cancelIfRequested() {
		return nil
	}
	m.advance()
	return nil
}
