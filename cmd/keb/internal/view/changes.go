package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
)

// Changes tells the news of one operation, answer by answer. The zero value is ready.
type Changes struct {
	last *operator.OperationDetail
	// done are the steps that have succeeded or were skipped once. When their stage is repeated, they run again, which is
	// no news.
	done map[string]bool
}

// Next lists what has changed since the last call, one line each and without the time.
func (c *Changes) Next(op *operator.OperationDetail, now time.Time) []string {
	var lines []string
	if c.last == nil {
		c.done = map[string]bool{}
		lines = append(lines, fmt.Sprintf("%s %s of instance %s, plan %s", op.Type, op.ID, op.InstanceID, op.Plan))
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

// isNews leaves out that a step waits, and that what has succeeded once runs or succeeds again.
func (c *Changes) isNews(name string, old, s *operator.Step) bool {
	switch s.State {
	case operator.StateWaiting, "":
		return false
	case operator.StateCurrent:
		// A step that is taken up again has told why when it began to wait.
		return !c.done[name] && old.State != s.State && old.State != operator.StateRetrying && s.Attempts <= 1
	case operator.StateSucceeded, operator.StateSkipped:
		return !c.done[name]
	}
	return old.State != s.State || old.Attempts != s.Attempts || told(old) != told(s)
}

func stepNews(s *operator.Step, now time.Time) string {
	if s.State == operator.StateCurrent {
		return "runs"
	}
	text := s.State
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

// stateNews tells when the operation itself has come to another state, or waits for something else.
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
		text += ": " + oneLine(op.Error.String())
	}
	if len(op.NotCompleted) > 0 {
		text += "; not completed: " + strings.Join(op.NotCompleted, ", ")
	}
	return text
}

// waits is what an operation waits for other than the retry of a step, which the step's own line tells.
func waits(op *operator.OperationDetail) string {
	if strings.HasPrefix(op.WaitingFor, "retry") {
		return ""
	}
	return op.WaitingFor
}
