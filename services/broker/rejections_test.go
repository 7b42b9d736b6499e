package broker_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

// reject makes the orchestrator answer with these holds that reject orders, and waits until the broker knows them.
func (b *bench) reject(rejections ...event.Rejection) {
	b.t.Helper()
	for i := range rejections {
		rejections[i].HoldID = string(rune('a' + i))
	}
	b.orch.set(func() { b.orch.rejections = rejections })
	// The broker reads pages: one of before and one of after the change may be as many as the new ones.
	want, err := json.Marshal(append([]event.Rejection{}, rejections...))
	require.NoError(b.t, err)
	testkit.Eventually(b.t, waitTimeout, "the broker knows the holds", func() bool {
		return b.count(`SELECT count(*) FROM broker.rejections WHERE rejections = $1`, string(want)) == 1
	})
}

// rejected fails the test unless the answer is 422 with the reason.
func (b *bench) rejected(what string, a answer, reason string) {
	b.t.Helper()
	if a.status != http.StatusUnprocessableEntity || a.text("description") != "orders are rejected at present: "+reason {
		b.t.Errorf("%s: %d %s, want 422 with the reason %q", what, a.status, a.raw, reason)
	}
}

func TestRejections_OrdersInScope_Get422WithReason(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	newRuntimes(b)
	b.provisioned("old")
	b.expect("bind", b.bind("old", "b-1", nil), http.StatusCreated)
	b.hold(true)
	running := b.accepted(b.put("running", order(azure)))
	other := order(azure)
	other["context"] = contextOf(map[string]any{"globalaccount_id": "ga-2"})["context"]
	larger := parameters(map[string]any{"autoScalerMax": 15})

	b.reject(event.Rejection{GlobalAccountID: "ga-3", Reason: "no"}, event.Rejection{GlobalAccountID: "ga-1", Reason: "no capacity"})
	b.rejected("new order", b.put("new", order(azure)), "no capacity")
	b.rejected("update", b.patch("old", larger), "no capacity")
	b.rejected("binding", b.bind("old", "b-2", nil), "no capacity")
	b.expect("repeated order", b.put("running", order(azure)), http.StatusAccepted)
	b.expect("repeated binding", b.bind("old", "b-1", nil), http.StatusOK)
	b.expect("update without an operation", b.patch("old", map[string]any{}), http.StatusOK)
	b.accepted(b.put("other", other))
	b.rows("instances of the rejected order", 0, `SELECT count(*) FROM broker.instances WHERE id = 'new'`)
	if !strings.Contains(b.log.String(), `msg="order rejected"`) {
		t.Error("the log has no rejected order")
	}
	b.hold(false)
	b.ended("running", running, "succeeded")
	b.ended("old", b.accepted(b.delete("old")), "succeeded")

	b.reject(event.Rejection{Type: event.Update, Plan: "azure", Reason: "no updates"})
	b.rejected("update", b.patch("running", larger), "no updates")
	b.expect("binding", b.bind("running", "b-1", nil), http.StatusCreated)
	b.provisioned("new")

	b.reject()
	b.updated("new", larger)
}

func TestRejections_RestartWithoutOrchestrator_StillApply(t *testing.T) {
	t.Parallel()
	clock := testkit.NewClock(time.Now())
	b := newBenchAt(t, clock.Now, nil)
	until := clock.Now().Add(time.Hour)
	b.reject(event.Rejection{Plan: azure, Region: "eastus", Type: event.Provision, Reason: "outage", Until: &until})
	b.orch.stop()
	b.restart()
	b.rejected("order", b.put("i", order(azure)), "outage")
	b.expect("order of another plan", b.put("j", order(aws)), http.StatusAccepted)
	clock.Advance(time.Hour)
	b.expect("order after the end of the hold", b.put("i", order(azure)), http.StatusAccepted)
	testkit.Eventually(t, waitTimeout, "the log reports that the orchestrator does not answer", func() bool {
		return strings.Contains(b.log.String(), "the last known ones apply")
	})
	b.orch.start()
	b.orch.set(func() { b.orch.rejections = nil })
	testkit.Eventually(t, waitTimeout, "the broker asks again", func() bool {
		return b.count(`SELECT count(*) FROM broker.rejections WHERE rejections = '[]'`) == 1
	})
}
