package dispatch

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
)

func TestAct_OperationEnds_AdmitsTheNextOne(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	o.limit(event.Update, 1)
	ids := b.request(o, "i-1", "i-2")
	o.admitWoken(t)
	b.states(map[string]event.OperationState{ids[0]: event.InProgress, ids[1]: event.Pending})
	for _, step := range []string{"One", "Two"} {
		require.NoError(t, o.Act(t.Context(), ids[0], engine.SkipStep{Step: step, By: "me"}))
	}
	o.admitWoken(t)
	b.states(map[string]event.OperationState{ids[0]: event.Succeeded, ids[1]: event.InProgress})
}

func TestRequest_DeprovisioningPreempts_AdmitsTheNextOne(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	o.limit(event.Provision, 1)
	provision := func(instance string) event.Operation {
		return event.Operation{Type: event.Provision, InstanceID: instance}
	}
	ids := b.requestAll(o, provision("i-1"), provision("i-2"))
	o.admitWoken(t)
	b.waitForRetry(o, ids[0])
	b.states(map[string]event.OperationState{ids[0]: event.InProgress, ids[1]: event.Pending})
	b.requestAll(o, event.Operation{Type: event.Deprovision, InstanceID: "i-1"})
	o.admitWoken(t)
	b.states(map[string]event.OperationState{ids[0]: event.Cancelled, ids[1]: event.InProgress})
}

// waitForRetry answers the current command of an operation with a retry result.
func (b *bundle) waitForRetry(o *orchestrator, id string) {
	b.t.Helper()
	r := result(id, b.row(id).Cursor)
	b.publishResult("alpha", event.TypeStepRetry, r, &event.StepRetry{RetryAfter: 60, Result: r})
	b.deliver(o, 1)
	if !b.row(id).Waiting() {
		b.t.Fatalf("operation %s does not wait", id)
	}
}

func (b *bundle) states(want map[string]event.OperationState) {
	b.t.Helper()
	for id, state := range want {
		if got := b.row(id).Status; got != state {
			b.t.Errorf("operation %s is %s, want %s", id, got, state)
		}
	}
}

// fakeLimits implements Limits.
type fakeLimits struct{ limit.Set }

// Current implements Limits.
func (f *fakeLimits) Current() (*limit.Set, int64) { return &f.Set, 1 }

// limit sets the only limit: on the operations of a type in progress.
func (o *orchestrator) limit(t event.OperationType, n int) {
	o.deps.Limits = &fakeLimits{limit.Set{Limits: []limit.Limit{{Name: "type", Scope: limit.Scope{limit.Type: {string(t)}}, Operations: n}}}}
}

// admitWoken runs the admission that RunAdmission would.
func (o *orchestrator) admitWoken(t *testing.T) {
	t.Helper()
	select {
	case <-o.admissions:
		require.NoError(t, o.Admit(t.Context()))
	default:
		t.Error("no admission was started")
	}
}

// busy makes instances busy with an operation that the orchestrator does not have. Operations for them wait until free is called.
func (b *bundle) busy(instances ...string) {
	b.t.Helper()
	for _, id := range instances {
		b.exec(`INSERT INTO orchestrator.instances (instance_id, running) VALUES ($1, gen_random_uuid())`, id)
	}
}

func (b *bundle) free() {
	b.t.Helper()
	b.exec(`UPDATE orchestrator.instances SET running = NULL`)
}

func TestAdmit_SeveralAccounts_TakeTurns(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	o.limit(event.Update, 2)
	var operations []event.Operation
	for i := range 6 {
		operations = append(operations, tenant(event.Update, "many", "many-"+strconv.Itoa(i)))
	}
	many := b.requestAll(o, operations...)
	o.admitWoken(t)
	one := b.requestAll(o, tenant(event.Update, "one", "one"))[0]
	o.admitWoken(t)
	b.states(map[string]event.OperationState{many[1]: event.InProgress, many[2]: event.Pending, one: event.Pending})
	for _, step := range []string{"One", "Two"} {
		require.NoError(t, o.Act(t.Context(), many[1], engine.SkipStep{Step: step, By: "me"}))
	}
	o.admitWoken(t)
	b.states(map[string]event.OperationState{many[1]: event.Succeeded, many[2]: event.Pending, one: event.InProgress})
}

// An operation whose definition cannot be read, for example after a rollback, keeps its turn for itself only.
func TestAdmit_UnreadableOperation_DoesNotStopOthers(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	b.busy("i-1", "i-2", "i-3")
	ids := b.request(o, "i-1", "i-2", "i-3")
	b.free()
	b.breakDefinition(ids[0])
	o.limit(event.Update, 1)
	require.NoError(t, o.Admit(t.Context()))
	b.states(map[string]event.OperationState{ids[0]: event.Pending, ids[1]: event.InProgress, ids[2]: event.Pending})
}

func TestAdmit_MoreThanABatch_StartsAll(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	// More operations than a transaction starts, in more queues than the first one reads.
	var operations []event.Operation
	for i := range window + 50 {
		operations = append(operations, tenant(event.Update, strconv.Itoa(i), "i-"+strconv.Itoa(i)))
		b.busy(operations[i].InstanceID)
	}
	b.requestAll(o, operations[:window]...)
	b.requestAll(o, operations[window:]...)
	b.free()
	require.NoError(t, o.Admit(t.Context()))
	var left int
	require.NoError(t, b.db.Get(&left, `SELECT count(*) FROM orchestrator.operations WHERE state = 'pending'`))
	if left != 0 {
		t.Errorf("%d operations are pending, want none", left)
	}
}
