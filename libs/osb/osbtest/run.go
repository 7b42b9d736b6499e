package osbtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// T is the part of testing.T that a case uses.
type T interface {
	Helper()
	Context() context.Context
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	// Fatalf does not return.
	Fatalf(format string, args ...any)
}

// Case is one case of the suite.
type Case struct {
	// ID is the id of the case in docs/contracts/osb.md, for example "P05".
	ID   string
	Name string
	// Needs are the names of the required fields of Hooks and Fixtures.
	Needs []string
	run   func(s *session)
}

// Outcome is the outcome of a case.
type Outcome string

// The outcomes.
const (
	Passed Outcome = "passed"
	Failed Outcome = "failed"
	NotRun Outcome = "not run"
)

// Result is the result of a case.
type Result struct {
	Case    Case
	Outcome Outcome
	// Messages are the failures, or the missing fields.
	Messages []string
}

// Cases returns all cases of the suite, in order.
func Cases() []Case {
	return slices.Concat(generalCases(), bodyCases(), catalogCases(), provisionCases(), provisionStateCases(),
		lastOperationCases(), fetchCases(), deprovisionCases(), orphanCases(), updateCases(), bindingCases(),
		lateBindingCases(), rotationCases())
}

// Run runs the suite, each case as a subtest with its id. At the end it logs the cases that were not run, and their number.
func Run(t *testing.T, cfg Config) {
	t.Helper()
	cfg.setDefaults()
	var skipped []string
	run := 0
	for _, c := range selected(&cfg) {
		if missing := missing(&cfg, c); len(missing) > 0 {
			skipped = append(skipped, fmt.Sprintf("%s %s: not run: %s", c.ID, c.Name, strings.Join(missing, ", ")))
			continue
		}
		run++
		t.Run(c.ID+" "+c.Name, func(t *testing.T) { execute(t, cfg, c) })
	}
	for _, line := range skipped {
		if cfg.RequireAll {
			t.Error(line)
		} else {
			t.Log(line)
		}
	}
	t.Logf("%d cases run, %d not run", run, len(skipped))
}

// Check runs the suite outside of a test and returns a result for each case.
func Check(ctx context.Context, cfg Config) []Result {
	cfg.setDefaults()
	var results []Result
	for _, c := range selected(&cfg) {
		result := Result{Case: c, Outcome: Passed}
		if missing := missing(&cfg, c); len(missing) > 0 {
			result.Outcome, result.Messages = NotRun, missing
			if cfg.RequireAll {
				result.Outcome = Failed
			}
		} else if result.Messages = record(ctx, cfg, c); len(result.Messages) > 0 {
			result.Outcome = Failed
		}
		results = append(results, result)
	}
	return results
}

func selected(cfg *Config) []Case {
	return slices.DeleteFunc(Cases(), func(c Case) bool {
		if len(cfg.Only) > 0 {
			return !slices.Contains(cfg.Only, c.ID)
		}
		return !strings.Contains(cfg.Groups, c.ID[:1])
	})
}

func missing(cfg *Config, c Case) []string {
	var lines []string
	for _, need := range c.Needs {
		if !cfg.has(need) {
			kind := "fixture"
			if isHook(need) {
				kind = "hook"
			}
			lines = append(lines, "needs "+kind+" "+need)
		}
	}
	return lines
}

func execute(t T, cfg Config, c Case) {
	s := &session{T: t, cfg: cfg}
	defer s.cleanUp()
	c.run(s)
}

// recorder is a T that records failures.
type recorder struct {
	ctx      context.Context
	failures []string
}

// stopped is the panic value that ends a case after Fatalf.
type stopped struct{}

func record(ctx context.Context, cfg Config, c Case) (failures []string) {
	r := &recorder{ctx: ctx}
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(stopped); !ok {
				panic(p)
			}
		}
		failures = r.failures
	}()
	execute(r, cfg, c)
	return r.failures
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Logf(string, ...any)      {}
func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(stopped{})
}
