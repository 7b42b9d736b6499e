package processes

import (
	"fmt"
	"strings"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// Diff describes the differences between two sets of processes as unified diffs, one line per step. from and to name the sets.
func Diff(before, after process.Set, from, to string) (string, error) {
	var text strings.Builder
	for _, t := range event.OperationTypes() {
		old, changed := before[t], after[t]
		if old == nil || changed == nil || old.Equal(changed) {
			continue
		}
		diff, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
			A: lines(old), B: lines(changed), FromFile: fmt.Sprintf("%s (%s)", t, from), ToFile: fmt.Sprintf("%s (%s)", t, to), Context: 2,
		})
		if err != nil {
			return "", fmt.Errorf("compare %s: %w", t, err)
		}
		text.WriteString(diff)
	}
	return text.String(), nil
}

// lines describes a process with one line for each stage and each step.
func lines(p *process.Process) []string {
	list := []string{fmt.Sprintf("timeout %s\n", p.Timeout)}
	for i := range p.Stages {
		list = append(list, "stage "+p.Stages[i].Name+"\n")
		for j := range p.Stages[i].Steps {
			list = append(list, "  "+stepLine(&p.Stages[i].Steps[j])+"\n")
		}
	}
	return list
}

func stepLine(s *process.Step) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: worker %s", s.Name, s.Worker)
	if !s.BuiltIn() {
		fmt.Fprintf(&b, ", retry every %s", s.Retry.Every)
		if s.Retry.Factor > 1 {
			fmt.Fprintf(&b, " to %s by factor %g", s.Retry.Max, s.Retry.Factor)
		}
		if s.Retry.Jitter > 0 {
			fmt.Fprintf(&b, " with jitter %g", s.Retry.Jitter)
		}
		if s.Retry.Timeout > 0 {
			fmt.Fprintf(&b, " for %s", s.Retry.Timeout)
		}
		if s.Retry.Scope == process.ScopeStep {
			b.WriteString(" alone")
		}
		if s.Waits() {
			fmt.Fprintf(&b, ", wait every %s", s.Wait.Every)
			if s.Wait.Timeout > 0 {
				fmt.Fprintf(&b, " for %s", s.Wait.Timeout)
			}
		}
		fmt.Fprintf(&b, ", execution %s, on timeout %s, on failure %s", s.Execution, s.OnTimeout, s.OnFailure)
	}
	if s.When != "" {
		fmt.Fprintf(&b, ", when %s", s.When)
	}
	return b.String()
}
