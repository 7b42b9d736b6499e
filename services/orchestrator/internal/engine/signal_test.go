package engine_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

const approved = "approval.17"

// arrived returns an event.
func arrived(key, id string) engine.Signal {
	return engine.Signal{Signal: event.Signal{Key: key, Source: "/approvals", ID: id, ReceivedAt: epoch, Data: json.RawMessage(`{"approved":true}`)}}
}

// awaitEvent answers the command in flight: the step waits for an event, and is tried again after a minute.
func (r *run) awaitEvent(key string) {
	r.t.Helper()
	r.result(engine.Result{Outcome: event.OutcomeRetry, RetryAfter: time.Minute, EventKey: key})
}

// commandEvent returns the id of the event in the command in flight; empty for none.
func (r *run) commandEvent() string {
	r.t.Helper()
	if !r.s.InFlight() {
		r.t.Fatal("no command is in flight")
	}
	if _, c := engine.Command(r.p, &r.s); c.Event != nil {
		return c.Event.ID
	}
	return ""
}

// atStepC returns a run at the step C, which is repeated alone.
func atStepC(t *testing.T) *run {
	t.Helper()
	r := started(t, provision)
	r.succeed()
	r.succeed()
	r.wantPosition("C", 1, 1)
	return r
}

func TestSignal_WaitingStep_RunsAtOnceWithIt(t *testing.T) {
	r := atStepC(t)
	r.awaitEvent(approved)
	if !r.s.AwaitsEvent() || r.s.Condition != engine.EventAwaited || !r.s.DueAt.Equal(r.now.Add(time.Minute)) {
		t.Fatalf("the operation does not wait for the event: %+v", r.s)
	}
	r.now = r.now.Add(time.Second)
	r.must(arrived(approved, "1"))
	r.wantPosition("C", 1, 2)
	_, c := engine.Command(r.p, &r.s)
	want := arrived(approved, "1").Signal
	if diff := cmp.Diff(&want, c.Event); diff != "" {
		t.Errorf("event of the command (-want +got):\n%s", diff)
	}
	if r.s.Condition != engine.EventAwaited || r.s.AwaitsEvent() {
		t.Errorf("condition %q, awaits an event: %t; want the condition to stay until the step has answered", r.s.Condition, r.s.AwaitsEvent())
	}
	if got := r.lines[len(r.lines)-1]; got != string(engine.KindEventReceived) {
		t.Errorf("the history ends with %q", got)
	}
	r.succeed()
	if r.s.Events != nil || r.s.EventKey != "" {
		t.Errorf("events %v and key %q after the step", r.s.Events, r.s.EventKey)
	}
}

func TestSignal_Event_StaysUntilTheStepWaitsForTheNext(t *testing.T) {
	r := atStepC(t)
	r.awaitEvent(approved)
	r.must(arrived(approved, "1"))
	r.sleep(time.Minute) // the worker has not answered
	if got := r.commandEvent(); got != "1" {
		t.Errorf("the command that was sent again has the event %q", got)
	}
	r.retry(time.Second)
	if r.s.AwaitsEvent() {
		t.Error("a failed try without an event waits for one")
	}
	r.sleep(time.Second)
	if got := r.commandEvent(); got != "1" {
		t.Errorf("the next try has the event %q, want the one that the failed try had", got)
	}
	r.awaitEvent(approved)
	r.sleep(time.Minute)
	if got := r.commandEvent(); got != "" {
		t.Errorf("the poll has the event %q, which the step has answered", got)
	}
	r.awaitEvent(approved)
	r.must(arrived(approved, "2"))
	if got := r.commandEvent(); got != "2" {
		t.Errorf("the command has the event %q, want the second", got)
	}
}

func TestSignal_RepeatedStage_GivesItToTheStepThatWaited(t *testing.T) {
	r := started(t, provision)
	r.succeed()
	r.awaitEvent(approved) // B
	r.must(arrived(approved, "1"))
	r.wantPosition("A", 2, 1)
	if got := r.commandEvent(); got != "" {
		t.Errorf("the command of A has the event %q of B", got)
	}
	r.awaitEvent("of.A")
	r.must(arrived("of.A", "2"))
	if got := r.commandEvent(); got != "2" {
		t.Errorf("the command of A has the event %q", got)
	}
	r.succeed()
	r.wantPosition("B", 3, 2)
	if got := r.commandEvent(); got != "1" {
		t.Errorf("the command of B has the event %q", got)
	}
	r.result(engine.Result{Outcome: event.OutcomeStageLost})
	r.sleep(time.Second)
	r.succeed()
	if got := r.commandEvent(); got != "1" {
		t.Errorf("after a loss of the stage memory the command of B has the event %q", got)
	}
}

func TestSignal_FailedTry_MayWaitForEventToo(t *testing.T) {
	r := atStepC(t)
	r.result(engine.Result{Outcome: event.OutcomeRetry, EventKey: approved, Error: &event.Error{Message: "503"}})
	if !r.s.AwaitsEvent() || r.s.Condition != engine.Failing {
		t.Fatalf("condition %q, awaits an event: %t", r.s.Condition, r.s.AwaitsEvent())
	}
	r.must(arrived(approved, "1"))
	if got := r.commandEvent(); got != "1" {
		t.Errorf("the command has the event %q", got)
	}
}

func TestSignal_OperationThatDoesNotWait_RejectsIt(t *testing.T) {
	for name, prepare := range map[string]func(r *run){
		"another key":         func(r *run) { r.awaitEvent("other") },
		"a command in flight": func(r *run) { r.awaitEvent(approved); r.sleep(time.Minute) },
		"polling":             func(r *run) { r.result(engine.Result{Outcome: event.OutcomeRetry}) },
		"a lost stage memory": func(r *run) {
			r.awaitEvent(approved)
			r.sleep(time.Minute)
			r.result(engine.Result{Outcome: event.OutcomeStageLost})
		},
		"the deadline":            func(r *run) { r.awaitEvent(approved); r.now = r.s.Deadline },
		"the end":                 func(r *run) { r.awaitEvent(approved); r.must(engine.Cancel{Reason: "r"}) },
		"a step that was skipped": func(r *run) { r.awaitEvent(approved); r.must(engine.SkipStep{Step: "C", By: "me"}) },
	} {
		t.Run(name, func(t *testing.T) {
			r := atStepC(t)
			prepare(r)
			r.reject(engine.ErrNotPossible, arrived(approved, "1"))
		})
	}
}

func TestSignal_FallbackPoll_CountsAgainstTheBudget(t *testing.T) {
	r := atStepC(t)
	for range 9 {
		r.awaitEvent(approved)
		r.sleep(time.Minute)
	}
	r.awaitEvent(approved)
	left := engine.Left(r.p, &r.s)
	require.NotNil(t, left)
	if !left.EndsAt.Equal(epoch.Add(10 * time.Minute)) {
		t.Errorf("the budget ends at %s", left.EndsAt)
	}
	r.sleep(time.Minute)
	r.awaitEvent(approved)
	r.wantStatus(event.Failed)
}

func TestSignal_Facts_NameTheAwaitedEvent(t *testing.T) {
	r := atStepC(t)
	var entries []engine.Entry
	r.awaitEvent(approved)
	entries = append(entries, r.last.History...)
	direct, derived := r.last.Facts, engine.Facts(r.p, &r.s, entries)
	if diff := cmp.Diff(direct, derived); diff != "" {
		t.Errorf("facts (-of the transition +of the history):\n%s", diff)
	}
	if f := direct[0].Payload.(*event.StepFinished); f.Event == nil || f.Event.Key != approved {
		t.Errorf("the fact has the event %+v", f.Event)
	}
	r.must(arrived(approved, "1"))
	entries = append(entries, r.last.History...)
	if derived = engine.Facts(r.p, &r.s, entries); len(derived) != 1 || len(r.last.Facts) != 0 {
		t.Errorf("%d facts of the history and %d of the event, want one and none", len(derived), len(r.last.Facts))
	}
}
