package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

var epoch = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

const operationID = "0193a3c5-0000-7000-8000-000000000001"

// load parses a process from YAML.
func load(t *testing.T, yaml string) *process.Process {
	t.Helper()
	_, rest, _ := strings.Cut(yaml, "operation: ")
	name, _, _ := strings.Cut(rest, "\n")
	set, err := process.Load(fstest.MapFS{name + ".yaml": {Data: []byte(yaml)}})
	require.NoError(t, err)
	for _, p := range set {
		return p
	}
	t.Fatal("no process")
	return nil
}

const provision = `
operation: provision
timeout: 1h
stages:
  - name: start
    steps:
      - {name: Starting, worker: orchestrator}
  - name: create
    steps:
      - {name: A, worker: alpha, execution: 1m, retry: {every: 10s, timeout: 5m}}
      - {name: B, worker: beta, execution: 1m, retry: {every: 10s, timeout: 5m}}
      - {name: C, worker: beta, execution: 1m, retry: {every: 30s, timeout: 10m, scope: step}}
  - name: finish
    steps:
      - {name: D, worker: alpha, when: 'plan.name != "trial"', execution: 1m, onFailure: skip, onTimeout: skip, retry: {every: 10s, timeout: 1m}}
      - {name: E, worker: beta, execution: 1m, retry: {every: 10s}}
`

// finally is appended to a process.
const finally = `
finally:
  - {name: Restore, worker: alpha, execution: 1m, retry: {every: 10s, timeout: 2m}}
  - {name: Notify, worker: beta, when: 'plan.name != "trial"', execution: 1m, retry: {every: 10s, timeout: 1m, scope: step}}
`

const deprovision = `
operation: deprovision
timeout: 1h
stages:
  - name: init_step
    steps: [{name: Init_Step, worker: orchestrator}]
  - name: first
    steps: [{name: First, worker: alpha, onFailure: skip, onTimeout: skip, retry: {every: 10s, timeout: 5m}}]
  - name: second
    steps: [{name: Second, worker: beta, retry: {every: 10s, timeout: 5m}}]
  - name: third
    steps: [{name: Third, worker: beta, retry: {every: 10s, timeout: 5m}}]
`

// run applies events to one operation.
type run struct {
	t     *testing.T
	p     *process.Process
	s     engine.State
	now   time.Time
	lines []string // the history
	facts []string
	last  engine.Effects
	// history holds the entries of all transitions.
	history []engine.Entry
}

func newRun(t *testing.T, p *process.Process) *run {
	t.Helper()
	return &run{t: t, p: p, now: epoch, s: engine.New(event.Operation{
		ID: operationID, Type: p.Operation, InstanceID: "i-1", Plan: event.Plan{ID: "azure", Name: "azure"},
	})}
}

// started returns a run whose first command is in flight.
func started(t *testing.T, yaml string) *run {
	t.Helper()
	r := newRun(t, load(t, yaml))
	r.must(engine.Start{})
	return r
}

func (r *run) must(e engine.Event) {
	r.t.Helper()
	if err := r.apply(e); err != nil {
		r.t.Fatalf("%T: %v", e, err)
	}
}

// reject applies an event that must fail and must not change the state.
func (r *run) reject(want error, e engine.Event) {
	r.t.Helper()
	before := fmt.Sprintf("%+v", r.s)
	if err := r.apply(e); !errors.Is(err, want) {
		r.t.Fatalf("%T: got error %v, want %v", e, err, want)
	}
	if after := fmt.Sprintf("%+v", r.s); after != before {
		r.t.Fatalf("%T was rejected but changed the state\nfrom %s\nto   %s", e, before, after)
	}
}

func (r *run) apply(e engine.Event) error {
	r.t.Helper()
	before := fmt.Sprintf("%+v", r.s)
	next, effects, err := engine.Apply(r.p, r.s, e, r.now)
	if after := fmt.Sprintf("%+v", r.s); after != before {
		r.t.Fatalf("%T modified its input state\nfrom %s\nto   %s", e, before, after)
	}
	if err != nil {
		return err
	}
	if retry, ok := e.(engine.Retry); !ok || retry.Stage == "" {
		r.checkStages(next)
	}
	r.check(next, effects)
	r.s, r.last = next, effects
	r.history = append(r.history, effects.History...)
	for _, h := range effects.History {
		line := string(h.Kind)
		if h.Kind == engine.KindStep {
			line = r.p.Stages[h.Stage].Steps[h.Step].Name + " " + string(h.Outcome)
		}
		r.lines = append(r.lines, line)
	}
	for _, f := range effects.Facts {
		r.facts = append(r.facts, string(f.Type))
	}
	return nil
}

// checkStages verifies that no finished stage runs again. Only an operator may order it.
func (r *run) checkStages(next engine.State) {
	r.t.Helper()
	if next.Stage < r.s.Stage && r.s.Ending == nil {
		r.t.Errorf("a finished stage is repeated: stage %d after %d", next.Stage, r.s.Stage)
	}
}

// check verifies the invariants of every transition.
func (r *run) check(next engine.State, effects engine.Effects) {
	r.t.Helper()
	cursor := r.s.Cursor
	if r.s.Waiting() && len(effects.History) > 0 && effects.History[0].Cursor == cursor+2 {
		cursor++ // the operation continues, which has no entry, and then skips steps
	}
	for _, h := range effects.History {
		if h.Cursor != cursor+1 {
			r.t.Errorf("history entry %s has cursor %d after %d", h.Kind, h.Cursor, cursor)
		}
		cursor = h.Cursor
	}
	if next.Cursor < cursor {
		r.t.Errorf("cursor %d is lower than the cursor %d of its history", next.Cursor, cursor)
	}
	if next.Cursor != r.s.Cursor && !effects.Changed {
		r.t.Error("the cursor has changed, but Changed is not set")
	}
	switch {
	case next.Held() == next.HeldSince.IsZero():
		r.t.Errorf("held is %t since %s", next.Held(), next.HeldSince)
	case next.Status == event.InProgress && count(next.InFlight(), next.Waiting(), next.Held(), next.Limited()) != 1:
		r.t.Errorf("an operation in progress must either await a result, wait, be held or be limited: %+v", next)
	case next.EventKey != "" && next.Condition == "" || len(next.Events) > 0 && next.Status != event.InProgress:
		r.t.Errorf("an operation that is %s awaits the event %q, and has %d", next.Status, next.EventKey, len(next.Events))
	case next.Status.Final() && next.Held(), next.Status != event.InProgress && next.Limited():
		r.t.Errorf("an operation that is %s must not be held or limited", next.Status)
	case next.Limited() == next.LimitedSince.IsZero(), next.Limited() && !next.DueAt.Equal(next.Deadline):
		r.t.Errorf("limited is %t since %s, due at %s with the deadline %s", next.Limited(), next.LimitedSince, next.DueAt, next.Deadline)
	case len(next.Granted) > 0 && !next.InFlight():
		r.t.Errorf("the operation counts in the limits %v, and no command is in flight", next.Granted)
	case next.Status != event.InProgress && (next.InFlight() || next.Waiting()):
		r.t.Errorf("an operation that is %s must not wait", next.Status)
	case effects.Dispatch && !next.InFlight():
		r.t.Error("Dispatch is set, but no command is in flight")
	case effects.Finished != (next.Status.Final() && !r.s.Status.Final()):
		r.t.Errorf("finished is %t for %s after %s", effects.Finished, next.Status, r.s.Status)
	}
}

func count(conditions ...bool) (n int) {
	for _, is := range conditions {
		if is {
			n++
		}
	}
	return n
}

// result applies a result of the command in flight.
func (r *run) result(res engine.Result) {
	r.t.Helper()
	res.Cursor, res.StartedAt, res.FinishedAt = r.s.AwaitedCursor(), r.now, r.now
	r.must(res)
}

func (r *run) succeed() { r.t.Helper(); r.result(engine.Result{Outcome: event.OutcomeSucceeded}) }

func (r *run) retry(after time.Duration) {
	r.t.Helper()
	r.result(engine.Result{Outcome: event.OutcomeRetry, RetryAfter: after, Error: &event.Error{Component: "ext", Message: "not yet"}})
}

func (r *run) fail() {
	r.t.Helper()
	r.result(engine.Result{Outcome: event.OutcomeFailed, Error: &event.Error{Component: "ext", Reason: "broken", Message: "it broke"}})
}

// sleep advances the time and applies Due.
func (r *run) sleep(d time.Duration) {
	r.t.Helper()
	r.now = r.now.Add(d)
	r.must(engine.Due{WorkerAlive: true})
}

func (r *run) wantPosition(step string, stageAttempt, stepAttempt int) {
	r.t.Helper()
	at := r.s.Position(r.p)
	if at == nil {
		r.t.Fatalf("the operation is %s without a position, want step %s", r.s.Status, step)
	}
	if got, want := fmt.Sprint(at.Step, at.StageAttempt, at.StepAttempt), fmt.Sprint(step, stageAttempt, stepAttempt); got != want {
		r.t.Fatalf("position is %s, want %s", got, want)
	}
}

func (r *run) wantStatus(status event.OperationState) {
	r.t.Helper()
	if r.s.Status != status {
		r.t.Fatalf("the operation is %s, want %s; error %+v", r.s.Status, status, r.s.Error)
	}
}
