package dispatch

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

// forge publishes a result as publisher, which was not asked; named is the worker in the result.
func (b *bundle) forge(publisher, named, id string, cursor int64) {
	b.t.Helper()
	r := result(id, cursor)
	r.Worker, r.Details = event.Worker{Name: named}, json.RawMessage(`{"forged":true}`)
	b.publishResult(publisher, event.TypeStepSucceeded, r, &event.StepSucceeded{Result: r})
}

func TestResult_OtherWorker_IsDropped(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	id := b.request(o, "i-1")[0]
	b.answer(id, b.row(id).AwaitedCursor(), nil)
	b.deliver(o, 1)
	before := b.row(id)
	for _, cached := range []bool{true, false} {
		if !cached {
			o = b.orchestrator()
		}
		b.forge("mallory", "mallory", id, before.Cursor)
		b.forge("mallory", "alpha", id, before.Cursor)
		b.forge("mallory", "mallory", id, before.Cursor-1)
		b.forge("mallory", "mallory", id, before.Cursor+1)
		b.deliver(o, 4)
		if diff := cmp.Diff(before, b.row(id)); diff != "" {
			t.Fatalf("the operation has changed (-before +after):\n%s", diff)
		}
		if foreign, stale := count(o.metrics.foreign), count(o.metrics.stale); foreign != 1 || stale != 2 {
			t.Errorf("%d foreign and %d stale results counted, want 1 and 2", foreign, stale)
		}
	}
	// A result that names another worker than its publisher is a dead letter.
	b.inStream(event.StreamResults, 0)
	b.inStream(event.StreamDead, 2)
	// The operation continues with the result of the worker that was asked, although the batch has forged results.
	b.forge("mallory", "mallory", id, before.Cursor)
	b.answer(id, before.Cursor, nil)
	b.forge("mallory", "mallory", id, before.Cursor)
	b.deliver(o, 3)
	if row := b.row(id); row.Status != event.Succeeded || len(row.Details) != 0 {
		t.Errorf("the operation is %s, with the details %s", row.Status, row.Details)
	}
}

// A try without an answer may have created an object after all. Its late result names the object, and the saved data name another one.
func TestResult_StaleWithOtherDetails_IsLogged(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	logged := &testkit.Log{}
	o.log = logged.Logger()
	id := b.request(o, "i-1")[0]
	cursor := b.row(id).AwaitedCursor()
	created := func(evaluation string) {
		b.answer(id, cursor, func(r *event.StepSucceeded) { r.Details = json.RawMessage(`{"evaluation":"` + evaluation + `"}`) })
		b.deliver(o, 1)
	}
	created("12")
	created("12")
	require.Equal(t, 1, count(o.metrics.stale))
	require.Empty(t, logged.String(), "after a second delivery")
	created("13")
	require.Contains(t, logged.String(), `not saved; an object that they name may remain`)
	require.Contains(t, logged.String(), `evaluation`)
	require.Contains(t, logged.String(), `13`)
}

// The cached row of one orchestrator names another worker than the one that the other orchestrator has asked.
func TestResult_AfterAStaleOneInABatch_IsApplied(t *testing.T) {
	b := setup(t)
	mine, other := b.orchestrator(), b.orchestrator()
	id := b.requestAll(mine, event.Operation{Type: event.UpgradeKyma, InstanceID: "i-1"})[0]
	first := b.row(id).Cursor
	b.clock.Advance(time.Hour)
	if n, err := other.Due(t.Context(), true); n != 1 || err != nil {
		t.Fatalf("%d operations taken up, error %v", n, err)
	}
	asked := b.row(id)
	if asked.Cursor != first+1 || asked.Ending == nil {
		t.Fatalf("the operation is at cursor %d after %d, ending as %+v", asked.Cursor, first, asked.Ending)
	}
	b.answer(id, first, nil)
	b.forge("gamma", "gamma", id, asked.Cursor)
	b.deliver(mine, 2)
	if row := b.row(id); row.Status != event.Failed || count(mine.metrics.foreign) != 0 {
		t.Errorf("the operation is %s, and %d results are foreign; want it to have ended", row.Status, count(mine.metrics.foreign))
	}
}
