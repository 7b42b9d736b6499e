package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
)

// Changes lists the changes between successive answers about one operation. The zero value is ready to use.
type Changes struct {
	last *operator.OperationDetail
	// done holds the steps that succeeded or were skipped. If their stage is repeated, they run again, which is
	// not reported.
	done map[string]bool
}

// Next returns the changes since the last call, one line each, without the time.
func (c *Changes) Next(op *operator.OperationDetail, now time.Time) []string {
	var lines []string
	if c.last == nil {
		c.done = map[string]bool{}
		lines = append(lines, fmt.Sprintf("%s %s%s of instance %s, plan %s", Kind(&op.Operation), op.ID, dryRun(op), op.InstanceID, op.Plan))
	}
	news := c.stateNews(op, now)
	if news != "" && !op.Final() {
		lines = append(lines, news)
	}
	steps, attempts := c.before()
	for _, stage := range op.Stages {
		if stage.Attempt > 1 && stage.Attempt > attempts[stage.Name] {
			lines = append(lines, fmt.Sprintf("%s starts again (attempt %d)", stage.Name, stage.Attempt))
		}
		for i := range stage.Steps {
			s := &stage.Steps[i]
			name := stage.Name + "/" + s.Name
			if old := steps[name]; c.isNews(name, &old, s) {
				lines = append(lines, name+" "+stepNews(s, now))
			}
			if s.State == operator.StateSucceeded || s.State == operator.StateSkipped {
				c.done[name] = true
			}
		}
	}
	if news != "" && op.Final() {
		lines = append(lines, news)
	}
	c.last = op
	return lines
}

// before returns the steps and the attempts of the stages in the last answer, by name.
func (c *Changes) before() (steps map[string]operator.Step, attempts map[string]int) {
	steps, attempts = map[string]operator.Step{}, map[string]int{}
	if c.last == nil {
		return steps, attempts
	}
	for _, stage := range c.last.Stages {
		attempts[stage.Name] = stage.Attempt
		for _, s := range stage.Steps {
			steps[stage.Name+"/"+s.Name] = s
		}
	}
	return steps, attempts
}

// isNews excludes waiting steps, and steps that succeeded before and run or succeed again.
func (c *Changes) isNews(name string, old, s *operator.Step) bool {
	switch s.State {
	case operator.StateWaiting, "":
		return false
	case operator.StateCurrent:
		return !c.done[name] && old.State != s.State && s.Attempts <= 1
	case operator.StateSucceeded, operator.StateSkipped:
		return !c.done[name]
	}
	if triedAgain(s.State) { // a try is news when it has ended
		return old.State != s.State || s.FinishedAt != nil && (old.FinishedAt == nil || !old.FinishedAt.Equal(*s.FinishedAt))
	}
	return old.State != s.State || old.Attempts != s.Attempts || told(old) != told(s)
}

func stepNews(s *operator.Step, now time.Time) string {
	if s.State == operator.StateCurrent {
		return "runs"
	}
	text := words(s.State)
	if s.Attempts > 1 {
		text += fmt.Sprintf(" (try %d)", s.Attempts)
	}
	if spent := spent(s, now); spent != "" {
		text += " after " + spent
	}
	if told := told(s); told != "" {
		text += ": " + told
	}
	return text
}

// stateNews reports a change of the operation's state or waiting reason.
func (c *Changes) stateNews(op *operator.OperationDetail, now time.Time) string {
	sameState := c.last != nil && c.last.State == op.State
	if !op.Final() {
		why := waits(op)
		switch {
		case why != "" && (!sameState || waits(c.last) != why):
			return string(op.State) + ", waits for: " + why
		case sameState:
			return ""
		}
		return string(op.State)
	}
	if sameState {
		return ""
	}
	text := headline(op, now)
	if op.Error != nil && op.State == event.Failed {
		text += ": " + OneLine(op.Error.String())
	}
	if op.Cause != nil {
		text += "; it was failing " + causeText(op.Cause)
	}
	if len(op.NotCompleted) > 0 {
		text += "; not completed: " + strings.Join(op.NotCompleted, ", ")
	}
	return text
}

// waits returns the waiting reason, except for a step that is tried again, which the line of the step shows.
func waits(op *operator.OperationDetail) string {
	if w := op.Waiting; w != nil && slices.Contains([]operator.WaitingReason{operator.Polling, operator.Failing, operator.NoAnswer}, w.Reason) {
		return ""
	}
	return op.WaitingFor
}
