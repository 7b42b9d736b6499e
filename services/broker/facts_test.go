package broker_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/broker"
)

func TestRepair_MissedFacts_UpdatesOperation(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) { c.RepairSilence = 200 * time.Millisecond })
	b.orch.set(func() { b.orch.silent = true })
	operation := b.accepted(b.put("i", order(azure)))
	b.ended("i", operation, "succeeded")
	b.expect("GET", b.send("GET", "/v2/service_instances/i", nil), 200)
}

func TestRepair_StreamLost_PublishesRequestAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) { c.RepairSilence = 200 * time.Millisecond })
	b.orch.stop() // no orchestrator consumes the request
	operation := b.accepted(b.put("i", order(azure)))
	testkit.Eventually(t, waitTimeout, "publication", func() bool {
		return b.count(`SELECT count(*) FROM broker.operations WHERE published_at IS NOT NULL`) == 1
	})
	b.nats.RestartEmpty(t)
	b.orch.start()
	b.ended("i", operation, "succeeded")
}

// fact publishes a fact as the orchestrator does.
func (b *bench) fact(operationID string, kind event.Type, data any) {
	b.t.Helper()
	e, err := bus.New(kind, uuid.NewString(), event.SourceOrchestrator, operationID, time.Now(), data)
	require.NoError(b.t, err)
	require.NoError(b.t, b.bus.Publish(b.t.Context(), bus.Message{Subject: event.FactSubject(event.Provision, kind), Event: e}))
}

// deadLetters waits for a number of dead letters.
func (b *bench) deadLetters(want uint64) {
	b.t.Helper()
	stream, err := b.bus.JetStream().Stream(b.t.Context(), string(event.StreamDead))
	require.NoError(b.t, err)
	testkit.Eventually(b.t, waitTimeout, "dead letters", func() bool {
		info, err := stream.Info(b.t.Context())
		return err == nil && info.State.Msgs == want
	})
}

func (b *bench) cursor(operationID string) int {
	return b.count(`SELECT cursor FROM broker.operations WHERE id = $1`, operationID)
}

func TestFacts_OutOfOrder_KeepNewestState(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	operation := b.started("i")

	at := func(cursor int64) event.Fact {
		return event.Fact{OperationID: operation, OperationType: event.Provision, InstanceID: "i", Cursor: cursor}
	}
	finished := func(cursor int64, outcome event.Outcome, step, next string) event.StepFinished {
		return event.StepFinished{
			Fact: at(cursor), Position: event.Position{Stage: "s", Step: step, StepAttempt: 1}, Outcome: outcome, Message: "about " + step,
			Next: &event.Position{Stage: "s", Step: next, StageAttempt: 1, StepAttempt: int(cursor)},
		}
	}
	b.fact(operation, event.TypeStepFinished, finished(9, event.OutcomeRetry, "Later", "Later"))
	testkit.Eventually(t, waitTimeout, "the later fact", func() bool { return b.cursor(operation) == 9 })
	if got := b.last("i", operation).text("description"); got != "provisioning: stage s" {
		t.Errorf("description is %q", got)
	}
	// An old fact changes only the list of steps that were not completed.
	b.fact(operation, event.TypeStepFinished, finished(5, event.OutcomeNotCompleted, "Earlier", "Next"))
	testkit.Eventually(t, waitTimeout, "the step not completed", func() bool {
		return b.count(`SELECT cardinality(not_completed) FROM broker.operations WHERE id = $1`, operation) == 1
	})
	b.rows("operations at the later position", 1, `SELECT count(*) FROM broker.operations WHERE id = $1 AND step = 'Later'`, operation)
	// The facts of one transition have the same cursor. The final state takes precedence, in any order.
	b.fact(operation, event.TypeOperationSucceeded, event.OperationSucceeded{Fact: at(10)})
	b.ended("i", operation, "succeeded")
	b.fact(operation, event.TypeStepFinished, finished(10, event.OutcomeSucceeded, "Last", ""))
	b.fact(operation, event.TypeOperationFailed, event.OperationFailed{Fact: at(3), Error: event.Error{Message: "old"}})
	unknown := at(1)
	unknown.OperationID = "unknown"
	b.fact(operation, event.TypeOperationSucceeded, event.OperationSucceeded{Fact: unknown})
	// The facts of this instance follow all facts that were published before.
	b.hold(false)
	b.provisioned("marker")
	if a := b.last("i", operation); a.text("state") != "succeeded" {
		t.Errorf("the operation was taken back: %s", a.raw)
	}
}

func TestFact_Unreadable_GoesToDeadLetters(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for _, data := range []any{
		"no object", map[string]any{"operationId": 7}, map[string]any{"cursor": 1}, map[string]any{"operationId": "x", "cursor": -1},
	} {
		b.fact("x", event.TypeOperationStarted, data)
	}
	b.provisioned("i")
	b.deadLetters(4)
}

func TestRemoveInstance_StepNotCompleted_HidesInstance(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	b.orch.set(func() { b.orch.exhausted = true })
	operation := b.accepted(b.delete("i"))
	b.ended("i", operation, "succeeded")
	b.rows("kept instances", 1, `SELECT count(*) FROM broker.instances WHERE id = 'i' AND deleted_at IS NOT NULL`)
	b.rows("kept credentials", 1, `SELECT count(*) FROM broker.credentials WHERE instance_id = 'i'`)
	b.expect("GET", b.get("i"), 404)
	b.expect("DELETE", b.delete("i"), 410)
	b.expect("PUT", b.put("i", order(azure)), 409)
	b.expect("poll", b.last("i", operation), 200)
}

func TestRemoveInstance_Unsettled_HidesInstanceUntilTheNext(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	b.orch.set(func() { b.orch.unsettled = true })
	operation := b.accepted(b.delete("i"))
	b.ended("i", operation, "succeeded")
	b.rows("kept instances", 1, `SELECT count(*) FROM broker.instances WHERE id = 'i' AND deleted_at IS NOT NULL`)
	b.expect("GET", b.get("i"), 404)
	b.expect("DELETE", b.delete("i"), http.StatusGone)
	b.orch.set(func() { b.orch.unsettled = false })
	again := b.send(http.MethodPost, "/runtimes/i/deprovision-retrigger", nil)
	b.expect("retrigger", again, http.StatusAccepted)
	b.ended("i", again.text("operation"), "succeeded")
	b.rows("kept instances", 0, `SELECT count(*) FROM broker.instances WHERE id = 'i'`)
}

func TestRemoveInstance_Unsettled_CanBeOrderedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	b.orch.set(func() { b.orch.unsettled = true })
	b.ended("i", b.accepted(b.delete("i")), "succeeded")
	b.orch.set(func() { b.orch.unsettled = false })
	b.provisioned("i")
	b.rows("instances", 1, `SELECT count(*) FROM broker.instances WHERE id = 'i' AND deleted_at IS NULL`)
	b.expect("retrigger", b.send(http.MethodPost, "/runtimes/i/deprovision-retrigger", nil), http.StatusConflict)
	b.ended("i", b.accepted(b.delete("i")), "succeeded")
	b.expect("DELETE", b.delete("i"), http.StatusGone)
	b.rows("instances", 0, `SELECT count(*) FROM broker.instances WHERE id = 'i'`)
}

func TestRemoveInstance_OldCommand_KeepsNewInstance(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	old := b.accepted(b.delete("i"))
	b.ended("i", old, "succeeded")
	b.provisioned("i")
	b.orch.mu.Lock()
	again := *b.orch.operations[old]
	b.orch.mu.Unlock()
	again.status.Cursor = 99 // a new message id
	if !b.orch.removeInstance(t.Context(), &again) {
		t.Fatal("no result")
	}
	b.expect("GET", b.send("GET", "/v2/service_instances/i", nil), 200)
}

// The previous release stored no saved data of instances. Without that data there is no binding and no kubeconfig.
func TestCatchUp_InstanceOfEarlierRelease_GetsRuntime(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	b.provisioned("j")
	b.stop()
	b.exec(`UPDATE broker.instances SET details = NULL, details_seq = 0, runtime_id = ''`)
	b.exec(`UPDATE broker.runtimes SET runtime_id = ''`)
	b.start()
	testkit.Eventually(t, waitTimeout, "the runtimes", func() bool {
		return b.count(`SELECT count(*) FROM broker.instances i JOIN broker.runtimes r ON r.instance_id = i.id
			WHERE i.runtime_id = 'runtime-of-' || i.id AND r.runtime_id = i.runtime_id AND i.details IS NOT NULL`) == 2
	})
	equal(t, "state", "succeeded", b.last("i", "").text("state"))
}

// Without the dead letters, a fact that Postgres rejects would be redelivered every second for seven days.
func TestFact_DatabaseRefuses_GoesToDeadLetters(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	operation := b.started("i")
	at := event.Fact{OperationID: operation, OperationType: event.Provision, InstanceID: "i", Cursor: 5}
	for _, next := range []event.Position{
		{Stage: "NUL \x00", Step: "Step", StageAttempt: 1, StepAttempt: 1}, {Stage: "stage", Step: "Step", StageAttempt: 1, StepAttempt: 3_000_000_000},
	} {
		b.fact(operation, event.TypeStepFinished, event.StepFinished{Fact: at, Outcome: event.OutcomeSucceeded, Next: &next})
	}
	b.deadLetters(2)
	b.hold(false)
	b.provisioned("other")
	b.ended("i", operation, "succeeded")
}

func TestOperation_RetriedByOperator_IsInProgressAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	operation := b.started("i")
	at := func(cursor int64) event.Fact {
		return event.Fact{OperationID: operation, OperationType: event.Provision, InstanceID: "i", Cursor: cursor}
	}
	state := func(cursor int64, want, description string) {
		t.Helper()
		testkit.Eventually(t, waitTimeout, "the fact", func() bool { return int64(b.cursor(operation)) == cursor })
		if a := b.last("i", operation); a.text("state") != want || (description != "" && a.text("description") != description) {
			t.Errorf("at cursor %d: %s, want state %q and %q", cursor, a.raw, want, description)
		}
	}
	b.fact(operation, event.TypeOperationFailed, event.OperationFailed{
		Fact: at(5), Stage: "s", Step: "Bad", Error: event.Error{Component: "avs", Reason: "err_avs", Message: "no"},
	})
	state(5, "failed", "")
	b.fact(operation, event.TypeOperationStarted, event.OperationStarted{
		Fact: at(7), Stages: []string{"s_first", "s"}, Next: &event.Position{Stage: "s", Step: "First", StageAttempt: 2, StepAttempt: 1},
	})
	state(7, "in progress", "provisioning: stage 2 of 2 (s)")
	// The facts of one transition have the same cursor, in any order.
	b.fact(operation, event.TypeOperationSucceeded, event.OperationSucceeded{Fact: at(9)})
	b.fact(operation, event.TypeStepFinished, event.StepFinished{
		Fact: at(9), Position: event.Position{Stage: "s", Step: "Bad", StageAttempt: 2, StepAttempt: 1}, Outcome: event.OutcomeSucceeded,
	})
	state(9, "succeeded", "")
	b.expect("the instance", b.send("GET", "/v2/service_instances/i", nil), 200)
}
