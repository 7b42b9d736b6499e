package broker_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestOrder_BusIsDown_IsPublishedLater(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.nats.Shutdown()
	operation := b.accepted(b.put("i", order(azure)))
	if a := b.last("i", operation); a.text("state") != "in progress" {
		t.Errorf("status %d %s", a.status, a.raw)
	}
	b.nats.Restart(t)
	b.ended("i", operation, "succeeded")
}

func TestOrder_CrashBeforePublication_IsPublishedLater(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.stop()
	b.prepare() // answers, but never publishes
	operation := b.accepted(b.put("i", order(azure)))
	if n := b.count(`SELECT count(*) FROM broker.operations WHERE published_at IS NULL`); n != 1 {
		t.Fatalf("%d requests wait to be published", n)
	}
	b.start()
	b.ended("i", operation, "succeeded")
	testkit.Eventually(t, waitTimeout, "the mark of publication", func() bool {
		return b.count(`SELECT count(*) FROM broker.operations WHERE published_at IS NULL`) == 0
	})
}

// A deletion that overtakes its order would leave a runtime behind.
func TestPublication_DeletionAfterOrder_KeepsOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.stop()
	b.prepare()
	provisioning := b.accepted(b.put("i", order(azure)))
	deprovisioning := b.accepted(b.delete("i"))
	if a := b.last("i", provisioning); a.text("state") != "failed" {
		t.Errorf("the provisioning is %s", a.raw)
	}
	b.start()
	b.ended("i", deprovisioning, "succeeded")
	var got []event.OperationType
	for _, op := range b.orch.received("i") {
		got = append(got, op.Type)
	}
	if diff := cmp.Diff([]event.OperationType{event.Provision, event.Deprovision}, got); diff != "" {
		t.Error(diff)
	}
	if a := b.last("i", provisioning); a.text("state") != "failed" {
		t.Errorf("the provisioning is %s", a.raw)
	}
}

func TestRequestEvent_Order_ContainsItsData(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	const incoming = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	a := b.send(http.MethodPut, "/oauth/cf-us10/v2/service_instances/i?accepts_incomplete=true", order(azure), "traceparent", incoming)
	operation := b.accepted(a)
	b.ended("i", operation, "succeeded")
	got := b.orch.received("i")[0]
	if got.Runtime.ShootName == "" || got.Runtime.ShootDomain != got.Runtime.ShootName+".kyma.local" {
		t.Errorf("runtime is %+v", got.Runtime)
	}
	got.Runtime.ShootName, got.Runtime.ShootDomain, got.Parameters = "", "", nil
	want := event.Operation{
		ID: operation, Type: event.Provision, InstanceID: "i", Plan: event.Plan{ID: azure, Name: "azure"},
		Context: event.Context{
			GlobalAccountID: "ga-1", SubaccountID: "sa-1", UserID: "user@example.org", PlatformRegion: "cf-us10", Platform: "cloudfoundry",
		},
		Runtime:     event.Runtime{Name: "sample", Provider: "azure", Region: "eastus"},
		Credentials: []string{event.CredentialsServiceManager},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	b.orch.mu.Lock()
	parent := b.orch.traces[operation]
	b.orch.mu.Unlock()
	if parent != incoming {
		t.Errorf("traceparent is %q, want %q: without tracing the broker is no part of the trace, and hands it on", parent, incoming)
	}
	b.ended("i", b.accepted(b.delete("i")), "succeeded")
	removal := b.orch.received("i")[1]
	want.ID, want.Type, want.UserAgent = removal.ID, event.Deprovision, "Go-http-client/1.1"
	removal.Runtime.ShootName, removal.Runtime.ShootDomain, removal.Parameters = "", "", nil
	if diff := cmp.Diff(want, removal); diff != "" {
		t.Error(diff)
	}
}

func TestBroker_DatabaseIsDown_Returns503(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("there")
	b.database.Cut()
	for _, a := range []answer{
		b.put("i", order(azure)), b.last("there", ""), b.delete("there"),
		b.send(http.MethodGet, "/v2/service_instances/there", nil),
	} {
		if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
			t.Errorf("status %d %s", a.status, a.raw)
		}
	}
	if err := b.broker.Ready(t.Context()); err == nil {
		t.Error("the broker is ready")
	}
	b.database.Restore()
	testkit.Eventually(t, waitTimeout, "recovery", func() bool { return b.delete("i").status == http.StatusGone })
	b.rows("operations", 1, `SELECT count(*) FROM broker.operations`)
}

func TestOperationID_NewOperations_GrowsWithTime(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	ids := []string{
		b.accepted(b.put("one", order(azure))), b.accepted(b.put("two", order(azure))), b.accepted(b.delete("one")),
	}
	for _, id := range ids {
		if parsed, err := uuid.Parse(id); err != nil || parsed.Version() != 7 {
			t.Errorf("operation id %s: version %d, %v; want 7", id, parsed.Version(), err)
		}
	}
	if !slices.IsSorted(ids) {
		t.Errorf("ids %v do not grow", ids)
	}
}
