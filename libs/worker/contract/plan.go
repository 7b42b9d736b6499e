package contract

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// basic lists the checks that the others require. If one of them fails, the worker is not checked further.
var basic = []string{registration, "answers"}

// beside lists neighbouring checks that run at the same time, because each waits for a few slow commands.
var beside = []string{"cases", "long-step", "time-limit", "cancel"}

// plan returns the selected checks in their order. Checks in one group run at the same time.
func plan(selected []string) [][]check {
	var groups [][]check
	for _, c := range checks() {
		if len(selected) > 0 && c.name != registration && !slices.Contains(selected, c.name) {
			continue
		}
		if n := len(groups); n > 0 && slices.Contains(beside, c.name) && slices.Contains(beside, groups[n-1][0].name) {
			groups[n-1] = append(groups[n-1], c)
			continue
		}
		groups = append(groups, []check{c})
	}
	return groups
}

// runAll runs the checks into a report. It stops after a basic check that failed.
func (k *kit) runAll(ctx context.Context, report *Report) error {
	groups := plan(k.cfg.Checks)
	for i, group := range groups {
		findings := k.runGroup(ctx, group)
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, f := range findings {
			report.Findings = append(report.Findings, f)
			if k.cfg.Progress != nil {
				k.cfg.Progress(f)
			}
		}
		f := findings[0]
		if f.Status != Failed || !slices.Contains(basic, f.Check) || f.Check == registration && len(k.steps) > 0 {
			continue
		}
		if left := count(groups[i+1:]); left > 0 {
			report.Stopped = fmt.Sprintf("stopped after the check %s: the other %d checks need a worker that passes it", f.Check, left)
		}
		return nil
	}
	return nil
}

func count(groups [][]check) (n int) {
	for _, group := range groups {
		n += len(group)
	}
	return n
}

// runGroup runs checks at the same time, and leaves a working worker for the next ones.
func (k *kit) runGroup(ctx context.Context, group []check) []Finding {
	findings := make([]Finding, len(group))
	if err := k.alive(); err != nil {
		for i := range group {
			findings[i] = group[i].finding(Failed)
			findings[i].Problems = []string{fmt.Sprintf("it cannot be started again: %v", err)}
		}
		return findings
	}
	if len(group) == 1 {
		findings[0] = k.check(ctx, group[0])
	} else {
		var all sync.WaitGroup
		for i := range group {
			part := *k // it has its own problems; none of these checks starts or stops the worker
			all.Go(func() { findings[i] = part.check(ctx, group[i]) })
		}
		all.Wait()
	}
	for i := range group {
		if group[i].live && findings[i].Status == Failed && ctx.Err() == nil && !slices.Contains(basic, group[i].name) {
			k.afresh(ctx)
			break
		}
	}
	return findings
}

// finding returns a finding of the check, with its hint if it failed.
func (c *check) finding(s Status) Finding {
	f := Finding{Check: c.name, What: c.what, Status: s}
	if s == Failed {
		f.Hint, f.Docs = c.hint, c.docs()
	}
	return f
}

// check runs one check.
func (k *kit) check(ctx context.Context, c check) Finding {
	k.problems, k.skipped, k.figure = nil, "", ""
	began := time.Now()
	c.run(ctx, k)
	if k.instance != nil {
		select {
		case <-k.instance.Done():
			k.bad("the worker ended by itself: %s; the last that it printed:\n%s", how(k.instance.Err()), k.output.last(8))
		default:
		}
	}
	status := Passed
	switch {
	case len(k.problems) > 0:
		status = Failed
	case k.skipped != "":
		status = Skipped
	}
	f := c.finding(status)
	f.Figure, f.Took = k.figure, time.Since(began).Seconds()
	switch status {
	case Failed:
		f.Problems = few(k.problems)
	case Skipped:
		f.Problems = []string{k.skipped}
	}
	return f
}
