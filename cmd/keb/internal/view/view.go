// Package view shows an operation until it ends, as a block of lines that a terminal rewrites, or as one line per change. It also prints
// bars of progress, and tables with the columns that the user has chosen.
package view

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/service"
)

// Size is the size of a terminal; zero values mean no limit.
type Size struct {
	Width, Height int
}

// Render renders an operation at a time. Finished stages are folded if there are not enough lines.
func Render(op *operator.OperationDetail, now time.Time, size Size) []string {
	lines := render(op, now, false)
	if size.Height > 0 && len(lines) > size.Height {
		lines = render(op, now, true)
	}
	if size.Height > 0 && len(lines) > size.Height {
		lines = lines[:size.Height]
	}
	if size.Width > 0 {
		for i, line := range lines {
			lines[i] = cut(line, size.Width)
		}
	}
	return lines
}

func render(op *operator.OperationDetail, now time.Time, fold bool) []string {
	lines := []string{
		fmt.Sprintf("%s %s%s%s  plan %s  instance %s", Kind(&op.Operation), op.ID, dryRun(op), Runtime(&op.Operation), op.Plan, op.InstanceID),
		headline(op, now),
	}
	if c := op.Cause; c != nil {
		lines = append(lines, "it was failing "+causeText(c))
	}
	if b := op.Budget; b != nil && op.Waiting != nil && op.Waiting.Reason != operator.Executing {
		lines = append(lines, budgetLine(op.Waiting.Step, b, now))
	}
	width, workers := 0, 0
	for _, stage := range op.Stages {
		for _, s := range stage.Steps {
			width, workers = max(width, len(s.Name)), max(workers, len(s.Worker))
		}
	}
	for _, stage := range op.Stages {
		lines = append(lines, stageLine(stage))
		if fold && stage.State != operator.StateCurrent {
			continue
		}
		for i := range stage.Steps {
			lines = append(lines, stepLine(&stage.Steps[i], op, now, width, workers))
		}
	}
	if len(op.NotCompleted) > 0 {
		lines = append(lines, "not completed: "+strings.Join(op.NotCompleted, ", "))
	}
	if op.Error != nil && op.State == event.Failed {
		lines = append(lines, "failed: "+OneLine(op.Error.String()))
	}
	return lines
}

// Kind returns the type of an operation, or its purpose: a suspension is not shown as a deprovisioning.
func Kind(op *operator.Operation) string { return cmp.Or(string(op.Purpose), string(op.Type)) }

// Runtime returns the name and the shoot of the runtime of an operation, after two blanks; empty if neither is known.
func Runtime(op *operator.Operation) string {
	switch {
	case op.RuntimeName != "" && op.ShootName != "":
		return "  " + OneLine(op.RuntimeName) + " (" + OneLine(op.ShootName) + ")"
	case op.RuntimeName+op.ShootName != "":
		return "  " + OneLine(op.RuntimeName+op.ShootName)
	}
	return ""
}

// causeText describes what a cancelled operation failed at.
func causeText(c *operator.Cause) string {
	text := fmt.Sprintf("at %s/%s since %s", c.Stage, c.Step, Time(c.Since))
	if c.Attempts > 1 {
		text += fmt.Sprintf(" (%d tries)", c.Attempts)
	}
	return text + ": " + OneLine(c.Error.String())
}

// dryRun marks a dry run.
func dryRun(op *operator.OperationDetail) string {
	if op.DryRun {
		return " (dry run)"
	}
	return ""
}

// headline describes the state of the whole operation.
func headline(op *operator.OperationDetail, now time.Time) string {
	text := string(op.ShownState())
	switch {
	case op.Final() && op.FinishedAt != nil:
		text += " after " + Duration(op.FinishedAt.Sub(began(op)))
	case op.StartedAt != nil:
		text += " for " + Duration(now.Sub(*op.StartedAt))
	default:
		text += " for " + Duration(now.Sub(op.CreatedAt))
	}
	if !op.Final() && op.CancelRequested != "" {
		text += "; will be cancelled when its current step answers: " + OneLine(op.CancelRequested)
	}
	if !op.Final() && op.WaitingFor != "" {
		text += "; waiting for: " + OneLine(op.WaitingFor)
	}
	if extension := op.Waiting.Extension(); extension != "" {
		text += "; " + extension
	}
	if op.Progress != nil {
		text += "; progress: " + OneLine(op.Progress.String())
	}
	return text
}

// limitWords describe the limits of operator.Budget.
var limitWords = map[string]string{"retry": "retry timeout", "wait": "wait timeout", "operation": "time limit of the operation"}

// budgetLine describes how long a step is tried, and what happens then.
func budgetLine(step string, b *operator.Budget, now time.Time) string {
	then := "the operation fails"
	if b.OnTimeout == "skip" {
		then = "the operation continues without it"
	}
	next := ""
	if b.NextTryAt != nil {
		next = ", next try in " + Duration(max(0, b.NextTryAt.Sub(now)))
	}
	return fmt.Sprintf("%s, try %d%s: %s unless it succeeds within %s (%s)", step, b.Attempts, next, then, Duration(max(0, b.EndsAt.Sub(now))),
		limitWords[b.Limit])
}

func began(op *operator.OperationDetail) time.Time {
	if op.StartedAt != nil {
		return *op.StartedAt
	}
	return op.CreatedAt
}

func stageLine(stage operator.Stage) string {
	mark := " "
	switch stage.State {
	case operator.StateFinished:
		mark = "✓"
	case operator.StateCurrent:
		mark = "▶"
	}
	line := mark + " " + stage.Name
	if stage.Attempt > 1 {
		line += fmt.Sprintf("  (attempt %d)", stage.Attempt)
	}
	return line
}

func stepLine(s *operator.Step, op *operator.OperationDetail, now time.Time, width, workers int) string {
	line := fmt.Sprintf("    %s %-*s  %-*s", mark(s.State), width, s.Name, workers, s.Worker)
	if s.State == operator.StateWaiting {
		return strings.TrimRight(line, " ")
	}
	line += "  " + words(s.State)
	if s.Attempts > 1 {
		line += fmt.Sprintf(", %d tries", s.Attempts)
	}
	if spent := spent(s, now); spent != "" {
		line += ", " + spent
	}
	if triedAgain(s.State) && op.DueAt != nil && op.Step == s.Name {
		line += ", again in " + Duration(max(0, op.DueAt.Sub(now)))
	}
	if text := told(s); text != "" {
		line += ": " + text
	}
	return line
}

func mark(state string) string {
	switch state {
	case operator.StateSucceeded:
		return "✓"
	case operator.StateCurrent:
		return "▶"
	case operator.StateFailed, operator.StateCancelled:
		return "✗"
	case operator.StateSkipped:
		return "–"
	case operator.StateNotCompleted:
		return "!"
	}
	if triedAgain(state) {
		return "↻"
	}
	return " "
}

// triedAgain reports whether a step in this state was tried and is not done.
func triedAgain(state string) bool {
	return slices.Contains(operator.StepReasons(), operator.WaitingReason(state))
}

// words returns a state as text.
func words(state string) string { return strings.ReplaceAll(state, "_", " ") }

// spent returns the duration of a step: of its last try if it succeeded at the first, otherwise of all tries.
func spent(s *operator.Step, now time.Time) string {
	start := s.FirstTriedAt
	if start == nil {
		start = s.StartedAt
	}
	switch {
	case s.State == operator.StateSkipped:
		return ""
	case s.State == operator.StateCurrent || triedAgain(s.State):
		if start != nil {
			return Duration(now.Sub(*start))
		}
	case start != nil && s.FinishedAt != nil && s.Attempts > 1:
		return Duration(s.FinishedAt.Sub(*start))
	case s.DurationMS != nil && *s.DurationMS > 0:
		return Duration(time.Duration(*s.DurationMS) * time.Millisecond)
	}
	return ""
}

// told returns the last error of the step, or else its last message.
func told(s *operator.Step) string {
	if s.Error != nil && s.State != operator.StateSucceeded {
		return OneLine(s.Error.String())
	}
	return OneLine(s.Message)
}

// OneLine returns a text in one line without control characters.
func OneLine(text string) string { return service.Printable(strings.Join(strings.Fields(text), " ")) }

// EscapeControls escapes the control characters from U+007F to U+009F in JSON, where they may be part of a string as they are.
func EscapeControls(raw []byte) []byte {
	var out bytes.Buffer
	for len(raw) > 0 {
		r, size := utf8.DecodeRune(raw)
		if r >= 0x7f && r <= 0x9f {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.Write(raw[:size])
		}
		raw = raw[size:]
	}
	return out.Bytes()
}

// Duration formats a duration in a short form: "80ms", "4.2s", "3m05s", "2h10m".
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "0ms"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// cut shortens a line to a number of characters, so that the terminal does not wrap it.
func cut(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	runes := []rune(line)
	if width <= 1 {
		return string(runes[:width])
	}
	return string(runes[:width-1]) + "…"
}
