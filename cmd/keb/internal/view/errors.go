package view

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/api/operator"
)

// maxErrorGroups limits the groups of errors in a snapshot.
const maxErrorGroups = 10

// ErrorHead is the head of the table of ErrorRows.
func ErrorHead() []string {
	return []string{"OPERATIONS", "REASON", "FIRST", "LAST", "KEY", "STEP", "ERROR"}
}

// ErrorRows returns the rows of a table of groups of errors.
func ErrorRows(groups []operator.ErrorGroup) [][]string {
	rows := make([][]string, len(groups))
	for i := range groups {
		g := &groups[i]
		rows[i] = []string{
			strconv.Itoa(g.Count), words(g.Reason), Time(g.First), Time(g.Last), cmp.Or(g.Key, "-"), stepsText(g), errorText(g),
		}
	}
	return rows
}

// errorText returns what the operations of a group have in common.
func errorText(g *operator.ErrorGroup) string {
	if g.Error != nil {
		return g.Error.String()
	}
	return g.Text
}

// stepsText names the step of a group with most operations.
func stepsText(g *operator.ErrorGroup) string {
	if len(g.Steps) == 0 {
		return "-"
	}
	text := g.Steps[0].Step
	if n := len(g.Steps) - 1 + g.MoreSteps; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// failingRows shows what operations stand still for, and slow executions.
func failingRows(e *operator.Errors) [][]string {
	var rows [][]string
	add := func(count int, reason string, since time.Time, step, text string) {
		rows = append(rows, []string{strconv.Itoa(count), words(reason), Duration(e.Time.Sub(since)), step, text})
	}
	groups := e.Now.Groups
	for i := range groups[:min(len(groups), maxErrorGroups)] {
		g := &groups[i]
		add(g.Count, g.Reason, g.First, stepsText(g), errorText(g))
	}
	for _, c := range e.Calm {
		if c.Reason == operator.Slow {
			add(c.Count, string(c.Reason), c.Since, c.Step, "executes for longer than usual")
		}
	}
	if n := len(groups) - maxErrorGroups; n > 0 {
		rows = append(rows, []string{"...", "", "", "", fmt.Sprintf("%d more groups; see keb errors", n)})
	}
	return rows
}

// failedRows shows what operations have failed with.
func failedRows(e *operator.Errors) [][]string {
	var rows [][]string
	groups := e.Failed.Groups
	for i := range groups[:min(len(groups), maxErrorGroups/2)] {
		g := &groups[i]
		rows = append(rows, []string{strconv.Itoa(g.Count), Duration(e.Time.Sub(g.Last)), stepsText(g), errorText(g)})
	}
	if n := len(groups) - maxErrorGroups/2; n > 0 {
		rows = append(rows, []string{"...", "", "", fmt.Sprintf("%d more groups; see keb errors", n)})
	}
	return rows
}

// CalmText names the steps at which operations poll, wait for an event or execute for longer than usual; empty for none.
func CalmText(groups []operator.CalmGroup) string {
	var parts []string
	for _, c := range groups {
		part := fmt.Sprintf("%d %s at %s", c.Count, calmWords(c.Reason), c.Step)
		if c.Long {
			part += " (for more than half of its time)"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

func calmWords(r operator.WaitingReason) string {
	if r == operator.AwaitsEvent {
		return "wait for an event"
	}
	return words(string(r))
}
