package stepworkers_test

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker/workertest"
)

// states returns the states of the instances in an event, in the order of their arrival.
func (w *world) states(orchestration string) string {
	w.t.Helper()
	var list struct {
		Data []struct {
			OrchestrationID string `json:"orchestrationId"`
			EventType       string `json:"eventType"`
			Tenants         []struct {
				InstanceID string `json:"instanceId"`
				EventState string `json:"eventState"`
			} `json:"tenants"`
		} `json:"data"`
	}
	w.admin(http.MethodGet, "/spc/objects", nil, &list)
	text := ""
	for _, e := range list.Data {
		if e.OrchestrationID != orchestration {
			continue
		}
		text += e.EventType + ":"
		for _, t := range e.Tenants {
			text += " " + t.InstanceID + "=" + t.EventState
		}
	}
	return text
}

func TestNotification_Operations_ShareOneEvent(t *testing.T) {
	w := newWorld(t)
	var ops []workertest.Operation
	for _, instance := range []string{"i-1", "i-2"} {
		ops = append(ops, w.upgrade(workertest.Operation{InstanceID: instance, Details: map[string]any{}}, event.UpgradeKyma, "k-"+instance))
	}
	for _, want := range []struct {
		step  string
		op    int
		state string
	}{
		{"Send_Notification", 0, "1: i-1=1 i-2="},
		{"Send_Notification", 1, "1: i-1=1 i-2=1"},
		{"Send_Finished_Notification", 0, "1: i-1=2 i-2=1"},
		{"Send_Finished_Notification", 1, "1: i-1=2 i-2=2"},
	} {
		ops[want.op] = w.killed(want.step, ops[want.op])
		if got := w.states("o-1"); got != want.state {
			t.Errorf("after %s of operation %d: %s, want %s", want.step, want.op, got, want.state)
		}
	}
	w.made("spc/event", 1)
	// An announced state is not sent again.
	if calls := w.calls(func() { w.all([]string{"Send_Finished_Notification"}, ops[0]) }); len(calls) != 0 {
		t.Errorf("%d calls of an operation after its announcement", len(calls))
	}
}

// moments matches the local times that the steps send.
var moments = regexp.MustCompile(`"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"`)

// Every plan sends the same requests.
func TestNotification_EachType_RequestsAreGolden(t *testing.T) {
	for _, kind := range []event.OperationType{event.UpgradeKyma, event.UpgradeCluster} {
		for _, plan := range plans {
			w := newWorld(t)
			op := workertest.Operation{InstanceID: "i-1", Plan: event.Plan{Name: plan}, Details: map[string]any{}}
			op = w.all([]string{"Send_Notification", "Send_Finished_Notification"}, w.upgrade(op, kind, "k-1"))
			w.notify(event.NotifyRequest{OrchestrationID: "o-2", Type: kind, Instances: []event.NotifiedInstance{
				{InstanceID: "i-1", Begin: w.clock()}, {InstanceID: "i-2", Begin: w.clock()},
			}})
			w.notify(event.NotifyRequest{OrchestrationID: "o-2", Type: kind, Cancelled: true})
			w.notify(event.NotifyRequest{OrchestrationID: "o-3", Type: kind, Cancelled: true})
			w.hidden = moments
			w.golden("spc_"+string(op.Type), "/spc")
		}
	}
}

func TestNotification_EveryError_IsRetried(t *testing.T) {
	w := newWorld(t)
	op := w.upgrade(workertest.Operation{InstanceID: "i-1", Details: map[string]any{}}, event.UpgradeKyma, "k-1")
	w.door.requests = nil
	for _, status := range []int{http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusServiceUnavailable} {
		for _, name := range []string{"Send_Notification", "Send_Finished_Notification"} {
			r := w.during(fault{prefix: "/spc", status: status}, name, op)
			if r.Outcome != retry || r.Error == nil || r.Error.Component != "spc" {
				t.Errorf("%s, status %d: %s, %+v", name, status, r.Outcome, r.Error)
			}
			w.build(w.url)
		}
	}
	// The event is created when the orchestration is scheduled, never by an operation.
	for _, r := range w.door.requests {
		if r.Request != "PATCH /spc/updateMaintenanceEvent" {
			t.Errorf("an operation sends %s", r.Request)
		}
	}
}

func TestNotification_NoOrchestration_Fails(t *testing.T) {
	w := newWorld(t)
	op := w.upgrade(workertest.Operation{InstanceID: "i-1", Details: map[string]any{}}, event.UpgradeKyma, "k-1")
	op.Upgrade.OrchestrationID = ""
	w.expect("Send_Notification", op, failed, "upgrade.orchestrationId")
}

// A state that an earlier upgrade announced and never ended is ignored.
func TestNotification_EachUpgrade_IsAnnounced(t *testing.T) {
	w := newWorld(t)
	op := w.upgrade(workertest.Operation{InstanceID: "i-1", Details: map[string]any{}}, event.UpgradeKyma, "k-1")
	op = w.all([]string{"Send_Notification"}, op)
	op = w.upgrade(op, event.UpgradeCluster, "c-1")
	op.Upgrade.OrchestrationID = "o-2"
	w.announce(op)
	w.all([]string{"Send_Notification"}, op)
	if got := w.states("o-2"); got != "0: i-1=1" {
		t.Errorf("%q", got)
	}
}
