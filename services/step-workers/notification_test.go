package stepworkers_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker/workertest"
)

const window = " 2026-01-02T03:00:00Z 2026-01-02T06:00:00Z"

func TestOperationsOfAnOrchestrationShareOneMaintenanceEvent(t *testing.T) {
	w := newWorld(t)
	var ops []workertest.Operation
	for _, instance := range []string{"i-1", "i-2"} {
		ops = append(ops, w.upgrade(workertest.Operation{InstanceID: instance, Details: map[string]any{}}, event.UpgradeKyma, "k-"+instance))
	}
	ops[0] = w.killed("Send_Notification", ops[0])
	if got := w.event("o-1"); got != "1: i-1 1"+window {
		t.Errorf("at first: %s", got)
	}
	ops[1] = w.killed("Send_Notification", ops[1])
	ops[0] = w.killed("Send_Finished_Notification", ops[0])
	if got := w.event("o-1"); got != "1: i-1 2"+window+", i-2 1"+window {
		t.Errorf("after the first one: %s", got)
	}
	w.killed("Send_Finished_Notification", ops[1])
	if got := w.event("o-1"); got != "1: i-1 2"+window+", i-2 2"+window {
		t.Errorf("at the end: %s", got)
	}
	if n := w.created()["spc/event"]; n != 1 {
		t.Errorf("%d events were made", n)
	}
	// What is told is not told again.
	if calls := w.calls(func() { w.all([]string{"Send_Finished_Notification"}, ops[0]) }); len(calls) != 0 {
		t.Errorf("%d calls of an operation that has told already", len(calls))
	}
}

func TestClusterUpgradesAreEventsOfKubernetes(t *testing.T) {
	w := newWorld(t)
	op := w.upgrade(workertest.Operation{InstanceID: "i-1", Details: map[string]any{}}, event.UpgradeCluster, "c-1")
	op.Upgrade.MaintenanceWindowBegin, op.Upgrade.MaintenanceWindowEnd = nil, nil
	w.all([]string{"Send_Notification"}, op)
	if got := w.event("o-1"); got != "0: i-1 1  " {
		t.Errorf("%q", got)
	}
}

func TestEndOfAMaintenanceThatWasNeverAnnouncedIsNotAnnounced(t *testing.T) {
	w := newWorld(t)
	op := w.upgrade(workertest.Operation{InstanceID: "i-1", Details: map[string]any{}}, event.UpgradeKyma, "k-1")
	if r := w.run("Send_Finished_Notification", op); r.Outcome != skipped {
		t.Errorf("%s, %+v", r.Outcome, r.Error)
	}
	if n := w.created()["spc/event"]; n != 0 {
		t.Errorf("%d events were made", n)
	}
}

func TestEveryFailureOfSPCIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	op := w.upgrade(workertest.Operation{InstanceID: "i-1", Details: map[string]any{}}, event.UpgradeKyma, "k-1")
	for _, status := range []int{http.StatusBadRequest, http.StatusForbidden, http.StatusConflict, http.StatusServiceUnavailable} {
		for _, name := range []string{"Send_Notification", "Send_Finished_Notification"} {
			w.door.fault.Store(&fault{prefix: "/spc", status: status})
			r := w.run(name, op)
			w.door.fault.Store(nil)
			if r.Outcome != retry || r.Error == nil || r.Error.Component != "spc" {
				t.Errorf("%s, status %d: %s, %+v", name, status, r.Outcome, r.Error)
			}
			w.build(w.url)
		}
	}
}

func TestOnlyOrchestrationsAreAnnounced(t *testing.T) {
	w := newWorld(t)
	op := w.upgrade(workertest.Operation{InstanceID: "i-1", Details: map[string]any{}}, event.UpgradeKyma, "k-1")
	op.Upgrade.OrchestrationID = ""
	if r := w.run("Send_Notification", op); r.Outcome != failed || !strings.Contains(r.Error.Message, "upgrade.orchestrationId") {
		t.Errorf("%s, %+v", r.Outcome, r.Error)
	}
}

// What an upgrade before has told, and never ended, says nothing.
func TestEachUpgradeIsAnnounced(t *testing.T) {
	w := newWorld(t)
	op := w.upgrade(workertest.Operation{InstanceID: "i-1", Details: map[string]any{}}, event.UpgradeKyma, "k-1")
	op = w.all([]string{"Send_Notification"}, op)
	op = w.upgrade(op, event.UpgradeCluster, "c-1")
	op.Upgrade.OrchestrationID = "o-2"
	w.all([]string{"Send_Notification"}, op)
	if got := w.event("o-2"); got != "0: i-1 1"+window {
		t.Errorf("%q", got)
	}
}
