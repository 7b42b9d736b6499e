package broker_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/broker"
)

func upgradeOrder(instanceID string, kind event.OperationType) event.UpgradeOrder {
	return event.UpgradeOrder{
		OperationID: uuid.NewString(), InstanceID: instanceID, Type: kind,
		Upgrade: event.Upgrade{OrchestrationID: uuid.NewString(), KymaVersion: "2.21.0"},
	}
}

// upgrade asks the broker to record upgrades, as an orchestration does.
func (b *bench) upgrade(orders ...event.UpgradeOrder) []event.UpgradeRecorded {
	b.t.Helper()
	var a event.UpgradeAnswer
	require.NoError(b.t, b.ask(event.AskUpgrade, event.UpgradeRequest{Upgrades: orders}, &a))
	if len(a.Upgrades) != len(orders) {
		b.t.Fatalf("%d answers to %d orders", len(a.Upgrades), len(orders))
	}
	for i, r := range a.Upgrades {
		if r.OperationID != orders[i].OperationID {
			b.t.Errorf("answer %d is about %s, want %s", i, r.OperationID, orders[i].OperationID)
		}
	}
	return a.Upgrades
}

// upgrading asks the broker to record an upgrade, which it must accept.
func (b *bench) upgrading(o event.UpgradeOrder) {
	b.t.Helper()
	if r := b.upgrade(o)[0]; r.Refused != "" {
		b.t.Fatalf("refused: %s", r.Refused)
	}
}

func TestUpgrade_Order_IsRecordedAndRequested(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	b.hold(true)
	o := upgradeOrder("i", event.UpgradeKyma)
	b.upgrading(o)
	testkit.Eventually(t, waitTimeout, "the request", func() bool { return len(b.orch.received("i")) == 2 })
	got := b.orch.received("i")[1]
	if got.ID != o.OperationID || got.Type != event.UpgradeKyma || got.Upgrade == nil || *got.Upgrade != o.Upgrade {
		t.Errorf("requested is %+v", got)
	}
	if got.Plan.Name != "azure" || got.Runtime.ShootName == "" || len(got.Parameters) == 0 || len(got.Credentials) != 1 {
		t.Errorf("requested without what it needs: %+v", got)
	}
	if a, err := b.claim("i", o.OperationID, event.CredentialsServiceManager); err != nil || !strings.Contains(string(a.Credentials), canary) {
		t.Errorf("credentials of the upgrade: %v", err)
	}
	// The platform does not see the upgrade.
	if a := b.send(http.MethodGet, "/v2/service_instances/i/last_operation", nil); a.text("state") != "succeeded" || !strings.Contains(a.raw, "provisioning") {
		t.Errorf("last operation: status %d %s", a.status, a.raw)
	}
	b.expect("GET", b.send(http.MethodGet, "/v2/service_instances/i", nil), http.StatusOK)
	b.expect("PUT again", b.put("i", order(azure)), http.StatusOK)
	testkit.Eventually(t, waitTimeout, "the upgrade in the list", func() bool { return b.runtimes("?state=upgrading").Count == 1 })
	b.hold(false)
	testkit.Eventually(t, waitTimeout, "the end of the upgrade", func() bool { return b.runtimes("?state=succeeded").Count == 1 })
	listed := b.runtimes("").Data[0].Status.UpgradingKyma
	if listed == nil || listed.Count != 1 || listed.Data[0].OrchestrationID != o.Upgrade.OrchestrationID || listed.Data[0].RuntimeVersion != "2.21.0" {
		t.Errorf("listed is %+v", listed)
	}
	if _, err := b.claim("i", o.OperationID, event.CredentialsServiceManager); err == nil {
		t.Error("credentials are handed out after the end")
	}
}

func TestUpgrade_DuringFirstCredentials_HasThem(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.bare("i")
	b.hold(true)
	update := b.accepted(b.patch("i", smContext("CANARY-first")))
	o := upgradeOrder("i", event.UpgradeKyma)
	b.upgrading(o)
	b.requested(o.OperationID)
	equal(t, "credentials of the upgrade", []string{event.CredentialsServiceManager}, b.newest("i").Credentials)
	b.orch.set(func() { b.orch.operations[update].released = true })
	testkit.Eventually(t, waitTimeout, "the end of the update", func() bool { return b.last("i", update).text("state") == "succeeded" })
	if a, err := b.claim("i", o.OperationID, event.CredentialsServiceManager); err != nil || !strings.Contains(string(a.Credentials), "CANARY-first") {
		t.Errorf("claimed %s, %v", a.Credentials, err)
	}
}

// The broker may apply the success of an update late. The next operation, which runs already, must not get the replaced credentials.
func TestClaim_SuccessOfUpdateIsUnknown_IsDelayed(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	b.hold(true)
	update := b.accepted(b.patch("i", smContext("CANARY-second")))
	o := upgradeOrder("i", event.UpgradeKyma)
	b.upgrading(o)
	if a, err := b.claim("i", o.OperationID, event.CredentialsServiceManager); err != nil || strings.Contains(string(a.Credentials), "CANARY-second") {
		t.Errorf("before the success claimed %s, %v", a.Credentials, err)
	}
	b.orch.set(func() { b.orch.silent, b.orch.operations[update].released = true, true })
	testkit.Eventually(t, waitTimeout, "the start of the upgrade", func() bool {
		b.orch.mu.Lock()
		defer b.orch.mu.Unlock()
		return b.orch.operations[o.OperationID].status.State == event.InProgress
	})
	if a, err := b.claim("i", o.OperationID, event.CredentialsServiceManager); err == nil || !strings.Contains(err.Error(), "ask again") {
		t.Errorf("claimed %s, %v", a.Credentials, err)
	}
	b.orch.set(func() { b.orch.silent = false })
	b.orch.succeed(b.orch.operations[update])
	testkit.Eventually(t, waitTimeout, "the end of the update", func() bool { return b.last("i", update).text("state") == "succeeded" })
	if a, err := b.claim("i", o.OperationID, event.CredentialsServiceManager); err != nil || !strings.Contains(string(a.Credentials), "CANARY-second") {
		t.Errorf("afterwards claimed %s, %v", a.Credentials, err)
	}
}

func TestUpgrade_RepeatedOrder_IsRecordedOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for n := range 10 {
		b.provisioned(fmt.Sprintf("i%d", n))
	}
	orders := make([]event.UpgradeOrder, 100)
	for n := range orders {
		orders[n] = upgradeOrder(fmt.Sprintf("i%d", n%10), event.UpgradeCluster)
	}
	var together sync.WaitGroup
	for range 4 {
		together.Go(func() {
			var a event.UpgradeAnswer
			if err := b.bus.AskWithTimeout(t.Context(), waitTimeout, event.AskUpgrade, event.UpgradeRequest{Upgrades: orders}, &a); err != nil {
				t.Errorf("ask: %v", err)
			}
			for _, r := range a.Upgrades {
				if r.Refused != "" {
					t.Errorf("refused: %s", r.Refused)
				}
			}
		})
	}
	together.Wait()
	b.rows("upgrades are recorded", 100, `SELECT count(*) FROM broker.operations WHERE type = 'upgradeCluster'`)
	other := orders[0]
	other.InstanceID = "i1"
	if r := b.upgrade(other)[0]; !strings.Contains(r.Refused, "another operation") {
		t.Errorf("the id of another upgrade: %q", r.Refused)
	}
	// A recorded upgrade remains recorded, whatever happens to the instance.
	b.accepted(b.delete("i0"))
	b.upgrading(orders[0])
}

func TestUpgrade_ConfirmOnly_RecordsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	known, unknown := upgradeOrder("i", event.UpgradeKyma), upgradeOrder("i", event.UpgradeKyma)
	b.upgrading(known)
	var a event.UpgradeAnswer
	require.NoError(t, b.ask(event.AskUpgrade, event.UpgradeRequest{Upgrades: []event.UpgradeOrder{known, unknown}, ConfirmOnly: true}, &a))
	want := []event.UpgradeRecorded{{OperationID: known.OperationID}, {OperationID: unknown.OperationID, Refused: "the upgrade is not recorded"}}
	equal(t, "answer", want, a.Upgrades)
	b.rows("upgrades are recorded", 1, `SELECT count(*) FROM broker.operations WHERE type = 'upgradeKyma'`)
}

func TestUpgrade_RequestHasExpired_RecordsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	request := event.UpgradeRequest{Upgrades: []event.UpgradeOrder{upgradeOrder("i", event.UpgradeKyma)}, ExpiresAt: time.Now().Add(-time.Second)}
	err := b.ask(event.AskUpgrade, request, &event.UpgradeAnswer{})
	require.ErrorContains(t, err, "the request for upgrades has expired")
	b.rows("no upgrade is recorded", 0, `SELECT count(*) FROM broker.operations WHERE type = 'upgradeKyma'`)
	request.ExpiresAt = time.Now().Add(time.Hour)
	require.NoError(t, b.ask(event.AskUpgrade, request, &event.UpgradeAnswer{}))
	b.rows("the upgrade is recorded", 1, `SELECT count(*) FROM broker.operations WHERE type = 'upgradeKyma'`)
}

func TestUpgrade_Impossible_ReturnsReason(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("ready")
	b.provisioned("left")
	b.orch.set(func() { b.orch.exhausted, b.orch.failing[event.Provision] = true, true })
	b.ended("left", b.accepted(b.delete("left")), "succeeded")
	b.ended("failed", b.accepted(b.put("failed", order(azure))), "failed")
	b.fail(event.Provision, false)
	b.provisioned("leaving")
	b.provisioned("asleep")
	b.hold(true)
	b.accepted(b.put("coming", order(azure)))
	b.accepted(b.delete("leaving"))
	b.exec(`INSERT INTO broker.operations (id, instance_id, type, state, created_at, updated_at, heard_at, published_at, suspension)
		VALUES ('s', 'asleep', 'deprovision', 'succeeded', now(), now(), now(), now(), true)`)
	b.exec(`SELECT broker.refresh_runtimes(ARRAY['asleep'])`)
	want := []struct{ id, reason string }{
		{"unknown", "no such instance"},
		{"coming", "still being provisioned"},
		{"failed", "failed"},
		{"left", "deleted"},
		{"leaving", "being deprovisioned"},
		{"asleep", "suspended"},
		{"ready", ""},
	}
	orders := make([]event.UpgradeOrder, len(want))
	for i, w := range want {
		orders[i] = upgradeOrder(w.id, event.UpgradeKyma)
	}
	for i, r := range b.upgrade(orders...) {
		if w := want[i]; (r.Refused == "") != (w.reason == "") || !strings.Contains(r.Refused, w.reason) {
			t.Errorf("%s: refused %q, want %q", w.id, r.Refused, w.reason)
		}
	}
	b.rows("upgrades are recorded", 1, `SELECT count(*) FROM broker.operations WHERE type = 'upgradeKyma'`)
}

func TestUpgrade_InvalidRequest_NamesTheMember(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	now := time.Now()
	change := func(f func(o *event.UpgradeOrder)) []event.UpgradeOrder {
		o := upgradeOrder("i", event.UpgradeKyma)
		f(&o)
		return []event.UpgradeOrder{upgradeOrder("i", event.UpgradeKyma), o}
	}
	twice := upgradeOrder("i", event.UpgradeKyma)
	for want, orders := range map[string][]event.UpgradeOrder{
		"there are none":                        nil,
		"at most 100":                           make([]event.UpgradeOrder, 101),
		"upgrades[1].operationId":               change(func(o *event.UpgradeOrder) { o.OperationID = "7" }),
		"upgrades[1].instanceId":                change(func(o *event.UpgradeOrder) { o.InstanceID = "" }),
		"upgrades[1].instanceId: must be UTF-8": change(func(o *event.UpgradeOrder) { o.InstanceID = "a\x00" }),
		"upgrades[1].type":                      change(func(o *event.UpgradeOrder) { o.Type = event.Deprovision }),
		"upgrades[1].upgrade.orchestrationId":   change(func(o *event.UpgradeOrder) { o.Upgrade.OrchestrationID = "" }),
		"upgrades[1].upgrade.kymaVersion":       change(func(o *event.UpgradeOrder) { o.Upgrade.KymaVersion = strings.Repeat("1", 300) }),
		"upgrades[1].upgrade.maintenanceWindow": change(func(o *event.UpgradeOrder) { o.Upgrade.MaintenanceWindowBegin = &now }),
		"maintenanceWindowEnd: must be after": change(func(o *event.UpgradeOrder) {
			o.Upgrade.MaintenanceWindowBegin, o.Upgrade.MaintenanceWindowEnd = &now, &now
		}),
		"upgrades[1].operationId: " + twice.OperationID: {twice, twice},
	} {
		err := b.ask(event.AskUpgrade, event.UpgradeRequest{Upgrades: orders}, &event.UpgradeAnswer{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
	if err := b.ask(event.AskUpgrade, json.RawMessage(`[1]`), &event.UpgradeAnswer{}); err == nil {
		t.Error("a question that is no object is answered")
	}
	b.rows("upgrades are recorded", 0, `SELECT count(*) FROM broker.operations WHERE type = 'upgradeKyma'`)
}

func TestDeprovision_DuringUpgrade_IsAccepted(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	b.hold(true)
	o := upgradeOrder("i", event.UpgradeCluster)
	b.upgrading(o)
	testkit.Eventually(t, waitTimeout, "the upgrade", func() bool { return b.runtimes("?state=upgrading").Count == 1 })
	operation := b.accepted(b.delete("i"))
	b.hold(false)
	b.ended("i", operation, "succeeded")
	b.expect("DELETE again", b.delete("i"), http.StatusGone)
}

func TestRepair_Upgrade_UpdatesOperation(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) { c.RepairSilence = 200 * time.Millisecond })
	b.provisioned("i")
	b.orch.set(func() { b.orch.silent = true })
	b.upgrading(upgradeOrder("i", event.UpgradeKyma))
	testkit.Eventually(t, waitTimeout, "the end of the upgrade", func() bool {
		return b.count(`SELECT count(*) FROM broker.operations WHERE type = 'upgradeKyma' AND state = 'succeeded'`) == 1
	})
}

func TestUpdate_DuringUpgrade_IsAccepted(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	b.hold(true)
	b.upgrading(upgradeOrder("i", event.UpgradeKyma))
	testkit.Eventually(t, waitTimeout, "the upgrade", func() bool { return b.runtimes("?state=upgrading").Count == 1 })
	operation := b.accepted(b.patch("i", parameters(map[string]any{"autoScalerMax": 9})))
	if got := b.runtimes("").Data[0]; got.Status.State != "upgrading" {
		t.Errorf("the update waits, and the state is %s", got.Status.State)
	}
	b.hold(false)
	b.ended("i", operation, "succeeded")
	equal(t, "most nodes", 9, b.runtimes("?cluster_config=true").Data[0].ClusterConfig.AutoScalerMax)
}

func TestRuntimes_Suspended_HasItsState(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.suspended("i")
	if l := b.runtimes(""); l.TotalCount != 0 {
		t.Errorf("listed unasked: %+v", l.Data)
	}
	l := b.runtimes("?state=suspended")
	if l.TotalCount != 1 || l.Data[0].RuntimeID != "" || l.Data[0].Status.Provisioning == nil || l.Data[0].Status.Deprovisioning != nil {
		t.Errorf("listed are %+v", l.Data)
	}
	if r := b.upgrade(upgradeOrder("i", event.UpgradeKyma))[0]; !strings.Contains(r.Refused, "suspended") {
		t.Errorf("an upgrade is refused with %q", r.Refused)
	}
	if page, err := b.instances(event.InstancesRequest{Limit: 10}); err != nil || page.Instances[0].State != event.InstanceSuspended {
		t.Errorf("orchestrations see %+v, %v", page, err)
	}
	b.ended("i", b.accepted(b.patch("i", active(true))), "succeeded")
	if r := b.runtimes("").Data; len(r) != 1 || r[0].RuntimeID == "" || r[0].Status.State != "succeeded" {
		t.Errorf("back again: %+v", r)
	}
}

// The worker kyma saves the version before it applies anything. After a failed upgrade, that is only the intended version.
func TestRuntimes_UpgradeFailed_ShowsAppliedVersion(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	version := func() string { return b.runtimes("").Data[0].KymaVersion }
	upgraded := func(want event.OperationState, details string, change func(*event.Upgrade)) {
		t.Helper()
		b.orch.set(func() {
			b.orch.details = json.RawMessage(details)
			b.orch.failing[event.UpgradeKyma] = want == event.Failed
		})
		o := upgradeOrder("i", event.UpgradeKyma)
		change(&o.Upgrade)
		b.upgrading(o)
		b.ended("i", o.OperationID, string(want))
	}
	const applied = `"reconciler":{"runtimeId":"r","kymaVersion":"2.20.0"}`
	upgraded(event.Succeeded, `{"kyma":{"version":"2.21.0"},`+applied+`}`, func(u *event.Upgrade) { u.DryRun = true })
	equal(t, "after a dry run", "2.20.0", version())
	equal(t, "mark of the dry run", true, b.runtimes("").Data[0].Status.UpgradingKyma.Data[0].DryRun)
	upgraded(event.Failed, `{"kyma":{"version":"2.21.0"},`+applied+`}`, func(*event.Upgrade) {})
	equal(t, "after a failure", "2.20.0", version())
	equal(t, "mark of the upgrade", false, b.runtimes("").Data[0].Status.UpgradingKyma.Data[0].DryRun)
	// The workers saved nothing, as in an installation without a Reconciler.
	upgraded(event.Succeeded, `{}`, func(u *event.Upgrade) { u.KymaVersion = "2.20.5" })
	upgraded(event.Succeeded, `{}`, func(u *event.Upgrade) { u.DryRun, u.KymaVersion = true, "2.22.0" })
	equal(t, "after a dry run without details", "2.20.5", version())
	upgraded(event.Succeeded, `{"kyma":{"version":"2.21.0"},"reconciler":{"kymaVersion":"2.21.0"}}`, func(*event.Upgrade) {})
	equal(t, "after an upgrade", "2.21.0", version())
}

// An upgrade of the cluster sends the administrators. After a preceding update, it must send the new ones.
func TestUpgrade_DuringUpdate_SendsNewValues(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	administrators := func() any { return members(t, b.newest("i").Parameters)["administrators"] }
	b.hold(true)
	update := b.accepted(b.patch("i", parameters(map[string]any{"administrators": []string{"new"}})))
	during := upgradeOrder("i", event.UpgradeCluster)
	b.upgrading(during)
	testkit.Eventually(t, waitTimeout, "the request", func() bool { return b.newest("i").ID == during.OperationID })
	equal(t, "administrators during the update", any([]any{"new"}), administrators())
	b.hold(false)
	b.ended("i", update, "succeeded")

	b.fail(event.Update, true)
	b.ended("i", b.accepted(b.patch("i", parameters(map[string]any{"administrators": []string{"failed"}}))), "failed")
	after := upgradeOrder("i", event.UpgradeCluster)
	b.upgrading(after)
	testkit.Eventually(t, waitTimeout, "the request", func() bool { return b.newest("i").ID == after.OperationID })
	equal(t, "administrators after a failed update", any([]any{"new"}), administrators())
}
