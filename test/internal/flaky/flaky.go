package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Test is one that failed and passed when it was run again, alone.
type Test struct {
	Package, Name string
	// Failures is how often it failed.
	Failures int
	// Output is that of its first failure, with its subtests'.
	Output string
}

// Report is what the events of a whole run say.
type Report struct {
	Flaky []Test
	// Hidden are failures that no test of a package accounts for. gotestsum runs no test for them, and takes that for success.
	Hidden []string
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

type testKey struct{ pkg, name string }

type record struct {
	failures  int
	last      string
	first     string
	output    strings.Builder
	isRunning bool
	hasFailed bool // in the run of its package that is in progress
}

// Read reads the events, in the order in which they were written.
func Read(r io.Reader) (Report, error) {
	var report Report
	tests := map[testKey]*record{}
	var order []testKey
	decoder := json.NewDecoder(bufio.NewReader(r))
	for {
		var e event
		err := decoder.Decode(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return report, fmt.Errorf("read the events of the tests: %w", err)
		}
		if e.Test == "" {
			if e.Action == "fail" {
				report.Hidden = append(report.Hidden, hidden(e.Package, tests, order)...)
			}
			if e.Action == "fail" || e.Action == "pass" || e.Action == "skip" {
				endPackage(e.Package, tests)
			}
			continue
		}
		root, _, isSubtest := strings.Cut(e.Test, "/")
		key := testKey{e.Package, root}
		t := tests[key]
		if t == nil {
			t = &record{}
			tests[key] = t
			order = append(order, key)
		}
		t.apply(e, isSubtest)
	}
	for _, key := range order {
		if t := tests[key]; t.failures > 0 && t.last == "pass" {
			report.Flaky = append(report.Flaky, Test{Package: key.pkg, Name: key.name, Failures: t.failures, Output: t.first})
		}
	}
	slices.Sort(report.Hidden)
	report.Hidden = slices.Compact(report.Hidden)
	return report, nil
}

func (t *record) apply(e event, isSubtest bool) {
	if e.Action == "output" {
		if !strings.HasPrefix(e.Output, "=== ") { // RUN, PAUSE, CONT and NAME
			t.output.WriteString(e.Output)
		}
		return
	}
	if isSubtest {
		return
	}
	switch e.Action {
	case "run":
		t.isRunning = true
		t.output.Reset()
	case "fail":
		if t.failures == 0 {
			t.first = t.output.String()
		}
		t.failures++
		t.hasFailed = true
		t.end("fail")
	case "pass", "skip":
		t.end(e.Action)
	}
}

func (t *record) end(action string) {
	t.isRunning, t.last = false, action
	t.output = strings.Builder{}
}

// hidden are the reasons why a package has failed that are not a failed test of this run of it.
func hidden(pkg string, tests map[testKey]*record, order []testKey) []string {
	var reasons []string
	failed := false
	for _, key := range order {
		if key.pkg != pkg {
			continue
		}
		t := tests[key]
		failed = failed || t.hasFailed
		if t.isRunning {
			reasons = append(reasons, fmt.Sprintf("%s ended in the middle of %s, so tests after it have not run", pkg, key.name))
		}
	}
	if !failed && len(reasons) == 0 {
		reasons = append(reasons, pkg+" failed although none of its tests did: look at TestMain, leaked goroutines, data races and the build")
	}
	return reasons
}

func endPackage(pkg string, tests map[testKey]*record) {
	for key, t := range tests {
		if key.pkg == pkg {
			t.isRunning, t.hasFailed = false, false
		}
	}
}

// summary begins the last lines of the runner.
const summary = "DONE "

// Copy writes what the runner prints, and returns its last summary, which it holds back: lines from the last one that begins with DONE.
func Copy(w io.Writer, r io.Reader) (held string, err error) {
	lines := bufio.NewReader(r)
	var hold strings.Builder
	for {
		line, err := lines.ReadString('\n')
		isSummary := strings.HasPrefix(line, summary)
		// What follows a summary line shows that it was not the last one, unless it is what make says about a failure.
		if hold.Len() > 0 && (isSummary || strings.TrimSpace(line) != "" && !ofMake(line)) {
			if _, err := io.WriteString(w, hold.String()); err != nil {
				return "", err
			}
			hold.Reset()
		}
		if isSummary || hold.Len() > 0 && strings.TrimSpace(line) == "" {
			hold.WriteString(line)
		} else if _, err := io.WriteString(w, line); err != nil {
			return "", err
		}
		if errors.Is(err, io.EOF) {
			return hold.String(), nil
		}
		if err != nil {
			return hold.String(), err
		}
	}
}

// ofMake reports whether a line is about the failure of the runner itself, and not about a test.
func ofMake(line string) bool {
	return strings.HasPrefix(line, "make") || strings.HasPrefix(line, "ERROR ")
}

// Print writes the report in the form of the runner's own sections.
func (r Report) Print(w io.Writer) error {
	var b strings.Builder
	for _, t := range r.Flaky {
		fmt.Fprintf(&b, "\n=== FLAKY: %s %s: failed %d of %d times; it first printed:\n%s", t.Package, t.Name, t.Failures, t.Failures+1, t.Output)
	}
	for _, reason := range r.Hidden {
		fmt.Fprintf(&b, "\n=== FAIL: %s\n", reason)
	}
	if len(r.Flaky) > 0 {
		fmt.Fprintf(&b, "\n%d flaky: mend them before other work goes on\n", len(r.Flaky))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
