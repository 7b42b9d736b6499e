package orchestrator_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

func TestOrchestration_Concurrency_IsLimited(t *testing.T) {
	f := newFakeBroker(t, 40)
	f.start()
	var mu sync.Mutex
	running, most := 0, 0
	f.script.set("Upgrade", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		mu.Lock()
		defer mu.Unlock()
		if op.StepAttempt == 1 {
			running++
			most = max(most, running)
			return op, 10 * time.Millisecond, nil // it is in progress, without a command
		}
		running--
		return op, 0, nil
	})
	id := f.upgradeAll(3)
	o := f.awaitOrchestration(id, "succeeded")
	if most != 3 {
		t.Errorf("at most %d upgrades ran at the same time, want 3", most)
	}
	if n := f.mostInProgress(); n != 3 {
		t.Errorf("at most %d members were in progress, want 3", n)
	}
	if diff := cmp.Diff(map[string]int{"succeeded": 40}, o.OperationStats); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
	if o.Description != "40 succeeded" || o.Type != "upgradeKyma" {
		t.Errorf("orchestration: %+v", o)
	}
	if len(f.recorded) != 40 {
		t.Errorf("%d operations are recorded", len(f.recorded))
	}
}

func TestOrchestration_Parameters_ReachTheOperation(t *testing.T) {
	f := newFakeBroker(t, 2)
	f.start()
	id := f.upgrade("cluster", `{"targets": {"include": [{"target": "all"}], "exclude": [{"instanceID": "i-00001"}]}, "dryRun": true,
		"notification": true, "kubernetes": {"kubernetesVersion": "1.31.4", "machineImage": "gardenlinux", "machineImageVersion": "1592.4.0"}}`)
	f.awaitOrchestration(id, "succeeded")
	members := f.members(id, "")
	if len(members) != 1 {
		t.Fatalf("members: %+v", members)
	}
	operation := members[0].OperationID
	want := event.UpgradeOrder{
		OperationID: operation, InstanceID: "i-00000", Type: event.UpgradeCluster, Upgrade: event.Upgrade{
			OrchestrationID: id, KubernetesVersion: "1.31.4", MachineImage: "gardenlinux", MachineImageVersion: "1592.4.0", DryRun: true, Notification: true,
		},
	}
	if diff := cmp.Diff(map[string]event.UpgradeOrder{operation: want}, f.recorded); diff != "" {
		t.Errorf("requests to the broker (-want +got):\n%s", diff)
	}
	var listed operator.Operation
	if f.get("/operations/"+operation, &listed); !listed.DryRun || listed.OrchestrationID != id {
		t.Errorf("operation %+v is not a dry run of %s", listed, id)
	}
	var shown shownMember
	f.get("/orchestrations/"+id+"/operations/"+operation, &shown)
	wantShown := shownMember{
		OperationID: operation, InstanceID: "i-00000", RuntimeID: "r-00000", GlobalAccountID: "ga", SubAccountID: "sa", OrchestrationID: id,
		ServicePlanID: "azure", ServicePlanName: "azure", ShootName: "c-00000", State: "succeeded", DryRun: true,
		ClusterConfig: map[string]string{"kubernetesVersion": "1.31.4", "machineImage": "gardenlinux", "machineImageVersion": "1592.4.0"},
	}
	if diff := cmp.Diff(wantShown, shown); diff != "" {
		t.Errorf("operation (-want +got):\n%s", diff)
	}

	var list struct {
		Data              []struct{ OrchestrationID, Type, State string }
		Count, TotalCount int
	}
	other := f.upgradeAll(1)
	f.awaitOrchestration(other, "succeeded")
	f.get("/orchestrations?page_size=1&state=succeeded", &list)
	if list.Count != 1 || list.TotalCount != 2 || list.Data[0].OrchestrationID != other {
		t.Errorf("list: %+v", list)
	}
	f.get("/orchestrations?state=failed", &list)
	if list.Count != 0 || list.Data == nil {
		t.Errorf("list: %+v", list)
	}
	var instance operator.Instance
	f.get("/instances/i-00000", &instance)
	dryRuns := map[string]bool{}
	for _, m := range instance.Orchestrations {
		dryRuns[m.OrchestrationID] = m.DryRun
	}
	if diff := cmp.Diff(map[string]bool{id: true, other: false}, dryRuns); diff != "" {
		t.Errorf("dry runs of the instance (-want +got):\n%s", diff)
	}
}

func TestOrchestration_ConnectionsDropped_Continues(t *testing.T) {
	f := newFakeBroker(t, 60)
	f.start()
	cuts := 0
	f.after = func([]event.UpgradeOrder) error {
		if cuts++; cuts%5 != 0 {
			return nil
		}
		_, err := f.db.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'keb-orchestrator%'`)
		return err
	}
	id := f.upgradeAll(4)
	if o := f.awaitOrchestration(id, "succeeded"); o.Description != "60 succeeded" {
		t.Errorf("description: %q", o.Description)
	}
	if cuts < 5 {
		t.Errorf("the broker received %d requests: no connection was dropped", cuts)
	}
	f.eachOnce()
	if n := f.mostInProgress(); n > 4 {
		t.Errorf("%d members were in progress, want at most 4", n)
	}
}

func TestOrchestration_ManyMembers_ArePaged(t *testing.T) {
	const members = 10_000
	f := newFakeBroker(t, members)
	f.start()
	id := f.upgrade("cluster", `{"targets": {"include": [{"target": "all"}]}, "strategy": {"schedule": "2099-01-01T00:00:00Z"}}`)
	f.awaitStats(id, map[string]int{"pending": members})
	seen := map[string]bool{}
	for page := 1; len(seen) < members; page++ {
		list := f.members(id, fmt.Sprintf("&page=%d", page))
		if len(list) != min(1000, members-len(seen)) {
			t.Fatalf("page %d has %d operations", page, len(list))
		}
		for _, m := range list {
			if seen[m.InstanceID] {
				t.Fatalf("%s is listed twice", m.InstanceID)
			}
			seen[m.InstanceID] = true
		}
	}
	if list := f.members(id, "&page=11"); len(list) != 0 {
		t.Errorf("%d operations after the last page", len(list))
	}
	f.call(http.MethodPut, "/orchestrations/"+id+"/cancel", "", "", http.StatusOK, nil)
	f.awaitOrchestration(id, "canceled")
	f.awaitStats(id, map[string]int{"canceled": members})
	if len(f.recorded) != 0 {
		t.Errorf("%d operations were recorded", len(f.recorded))
	}
}

func TestOrchestration_RequestRejected_SkipsTheMember(t *testing.T) {
	f := newFakeBroker(t, 10)
	for i := range 9 {
		f.refuse[fmt.Sprintf("i-%05d", i)] = "the instance is suspended"
	}
	f.start()
	id := f.upgradeAll(1)
	o := f.awaitOrchestration(id, "succeeded")
	if diff := cmp.Diff(map[string]int{"succeeded": 1, "skipped": 9}, o.OperationStats); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
	for _, m := range f.members(id, "&state=skipped") {
		if m.Description != "the instance is suspended" {
			t.Errorf("skipped: %+v", m)
		}
	}
}

func TestOrchestration_InstanceNotProvisioned_IsSkipped(t *testing.T) {
	f := newFakeBroker(t, 7)
	for i, state := range []event.InstanceState{
		event.InstanceProvisioning, event.InstanceFailed, event.InstanceSuspended, event.InstanceDeprovisioning, event.InstanceDeleted,
	} {
		f.instances[i].State = state
	}
	f.start()
	id := f.upgradeAll(5)
	f.awaitOrchestration(id, "succeeded")
	if diff := cmp.Diff([]string{"i-00005", "i-00006"}, slices.Sorted(slices.Values(f.order))); diff != "" {
		t.Errorf("upgraded (-want +got):\n%s", diff)
	}
	none := f.upgrade("kyma", `{"targets": {"include": [{"planName": "aws"}]}, "strategy": {"schedule": "2020-01-01T00:00:00Z"}}`)
	if o := f.awaitOrchestration(none, "succeeded"); o.Description != "no instance matches the targets" {
		t.Errorf("description: %q", o.Description)
	}
}

func TestOrchestration_Cancel_AwaitsRunningOperations(t *testing.T) {
	f := newFakeBroker(t, 20)
	f.start()
	open := make(gate)
	f.script.set("Upgrade", open.step)
	// An upgrade of this instance is recorded and waits.
	busy := make(gate)
	f.script.set("Change", busy.step)
	update := operation(event.Update, "i-00000", "azure")
	f.request(update)
	f.await(update, event.InProgress)

	id := f.upgradeAll(3)
	testkit.Eventually(t, patience, "two upgrades run", func() bool { return f.script.count("Upgrade") == 2 })
	queued := f.members(id, "&state=in%20progress")[0]
	testkit.Eventually(t, patience, "one operation is queued", func() bool { return f.state(queued.OperationID) == event.Pending })
	for range 2 { // the second call has no effect
		var answer struct{ OrchestrationID string }
		f.call(http.MethodPut, "/orchestrations/"+id+"/cancel", "", "", http.StatusOK, &answer)
		if answer.OrchestrationID != id {
			t.Errorf("answer: %+v", answer)
		}
	}
	f.awaitStats(id, map[string]int{"in progress": 2, "canceled": 18})
	if o := f.orchestration(id); o.State != "canceling" || o.Description != "Orchestration was canceled" {
		t.Errorf("orchestration: %+v", o)
	}
	if got := f.state(queued.OperationID); got != event.Cancelled {
		t.Errorf("the queued operation is %s", got)
	}
	const form = "application/x-www-form-urlencoded"
	f.call(http.MethodPost, "/orchestrations/"+id+"/retry", form, "", http.StatusConflict, nil)
	close(open)
	o := f.awaitOrchestration(id, "canceled")
	if diff := cmp.Diff(map[string]int{"succeeded": 2, "canceled": 18}, o.OperationStats); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
	f.call(http.MethodPut, "/orchestrations/"+id+"/cancel", "", "", http.StatusOK, nil)
	if o := f.orchestration(id); o.State != "canceled" {
		t.Errorf("a canceled orchestration becomes %s when it is canceled again", o.State)
	}
	close(busy)
	f.await(update, event.Succeeded)
	if len(f.recorded) != 3 {
		t.Errorf("%d operations are recorded, want 3", len(f.recorded))
	}
}

// One of two orchestrators stops while the canary runs, and another one while it waits for approval.
func TestOrchestration_CanaryAndPause_SurviveKills(t *testing.T) {
	f := newFakeBroker(t, 12)
	f.start()
	second := f.orchestrator()
	open := make(gate)
	f.script.set("Upgrade", open.step)
	id := f.upgrade("kyma", `{"targets": {"include": [{"target": "all"}]}, "strategy": {"parallel": {"workers": 5}, "canary": {"size": 2}, "maxFailures": 0}}`)
	testkit.Eventually(t, patience, "the canary runs", func() bool { return f.script.count("Upgrade") == 2 })
	second.stop()
	second = f.orchestrator()
	close(open)
	waiting := f.awaitOrchestration(id, "paused")
	if want := "waiting for approval of the canary: 2 succeeded; 2 of 12 operations have ended"; waiting.Description != want || waiting.Pause.Reason != "approval" {
		t.Errorf("description %q, pause %+v; want %q", waiting.Description, waiting.Pause, want)
	}
	if n := f.mostInProgress(); n != 2 {
		t.Errorf("%d members were in progress before the approval, want 2", n)
	}
	second.stop()
	f.orchestrator()
	path := "/orchestrations/" + id
	f.call(http.MethodPut, path+"/resume", "", "", http.StatusConflict, nil)

	open = make(gate)
	f.script.set("Upgrade", open.step)
	// An upgrade of this instance is recorded and waits.
	busy := make(gate)
	f.script.set("Change", busy.step)
	update := operation(event.Update, "i-00002", "azure")
	f.request(update)
	f.await(update, event.InProgress)
	f.call(http.MethodPut, path+"/approve", "", "", http.StatusOK, nil)
	testkit.Eventually(t, patience, "four upgrades run", func() bool { return f.script.count("Upgrade") == 6 })
	testkit.Eventually(t, patience, "one operation is queued", func() bool {
		var n int
		require.NoError(t, f.db.Get(&n, `SELECT count(*) FROM orchestrator.operations WHERE type = 'upgradeKyma' AND state = 'pending'`))
		return n == 1
	})
	var paused operator.Orchestration
	f.call(http.MethodPut, path+"/pause", "", "", http.StatusOK, &paused)
	if paused.State != "paused" || paused.Pause.Reason != operator.PausedByOperator || paused.Progress.InProgress != 5 || paused.Progress.Waiting != 5 {
		t.Errorf("orchestration %+v", paused)
	}
	f.call(http.MethodPut, path+"/approve", "", "", http.StatusConflict, nil)
	// The queued operation does not start when its instance is free.
	f.awaitStats(id, map[string]int{"succeeded": 2, "in progress": 4, "pending": 6})
	close(busy)
	f.await(update, event.Succeeded)
	close(open)
	f.awaitStats(id, map[string]int{"succeeded": 6, "pending": 6})
	f.script.set("Upgrade", done)
	f.call(http.MethodPut, path+"/resume", "", "", http.StatusOK, nil)
	if o := f.awaitOrchestration(id, "succeeded"); o.Description != "12 succeeded" {
		t.Errorf("description %q", o.Description)
	}
	var list operator.List[operator.Orchestration]
	f.get("/orchestrations", &list)
	if p := list.Data[0].Progress; p.Ended != 12 || p.Total != 12 || list.Data[0].StartedAt == nil {
		t.Errorf("progress in the list: %+v", p)
	}
	f.call(http.MethodPut, path+"/pause", "", "", http.StatusConflict, nil)
}

func TestOrchestration_MaxFailures_PausesAndGroupsErrors(t *testing.T) {
	f := newFakeBroker(t, 20)
	for i := range f.instances {
		f.instances[i].KymaVersion, f.instances[i].Failed = "2.19."+strconv.Itoa(i%2), i < 18
	}
	f.start()
	f.script.set("Upgrade", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		return worker.Fail(op, &worker.Error{Component: "ext", Reason: "broken", Message: "runtime " + op.ID + ": status 503"})
	})
	id := f.upgrade("kyma", `{"targets": {"include": [{"kymaVersion": "2.19", "failed": true}], "exclude": [{"kymaVersion": "2.19.1"}]},
		"strategy": {"maxFailures": 2}}`)
	f.awaitOrchestration(id, "paused")
	var o operator.Orchestration
	f.get("/orchestrations/"+id, &o)
	if want := "paused when 3 operations had failed, maxFailures allows 2; 3 of 9 operations have ended, 3 of them failed"; o.Description != want {
		t.Errorf("description %q, want %q", o.Description, want)
	}
	if len(o.Failures) != 1 || o.Failures[0].Count != 3 || o.Failures[0].Error != "runtime …: status 503" || o.Pause.Reason != operator.PausedByFailures {
		t.Errorf("failures %+v, pause %+v", o.Failures, o.Pause)
	}
}

// A broker of an earlier release names neither its plans nor the versions of instances.
func TestOrchestration_OldBroker_VersionTargetsWait(t *testing.T) {
	f := newFakeBroker(t, 1)
	f.old, f.plans = true, nil
	f.start()
	f.awaitOrchestration(f.upgrade("kyma", `{"targets": {"include": [{"planName": "future"}]}}`), "succeeded")
	id := f.upgrade("kyma", `{"targets": {"include": [{"kymaVersion": "2.19"}]}}`)
	testkit.Eventually(t, patience, "the description has the reason", func() bool {
		return strings.Contains(f.orchestration(id).Description, "a broker of an earlier release knows no versions")
	})
}

func TestOrchestration_Retry_RepeatsFailedOperations(t *testing.T) {
	f := newFakeBroker(t, 5)
	f.start()
	broken := func(instances ...string) {
		f.script.set("Upgrade", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
			if slices.Contains(instances, op.InstanceID) {
				return worker.Fail(op, &worker.Error{Component: "ext", Reason: "broken", Message: "ext is broken"})
			}
			return op, 0, nil
		})
	}
	broken("i-00001", "i-00002", "i-00003")
	id := f.upgradeAll(2)
	o := f.awaitOrchestration(id, "failed")
	if o.Description != "2 succeeded, 3 failed" {
		t.Errorf("description: %q", o.Description)
	}
	failed := f.members(id, "&state=failed")
	for _, m := range failed {
		if m.Description != "ext is broken" {
			t.Errorf("failed: %+v", m)
		}
	}
	succeeded := f.members(id, "&state=succeeded")[0].OperationID

	type answer struct {
		OrchestrationID, Msg                          string
		RetryShoots, OldOperations, InvalidOperations []string
	}
	retry := func(body string) (a answer) {
		f.call(http.MethodPost, "/orchestrations/"+id+"/retry", "application/x-www-form-urlencoded", body, http.StatusAccepted, &a)
		return a
	}
	open := make(gate)
	f.script.set("Upgrade", open.step)
	got := retry("operation-id=" + failed[0].OperationID + "&operation-id=" + succeeded + "&operation-id=nonsense&immediate=true")
	want := answer{
		OrchestrationID: id, Msg: "retry operations are queued for processing", RetryShoots: []string{"c-00001"},
		OldOperations: []string{}, InvalidOperations: []string{succeeded, "nonsense"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	f.awaitStats(id, map[string]int{"succeeded": 2, "failed": 2, "in progress": 1})
	// An operation that is already being repeated is old, also while the orchestration runs.
	if got := retry("operation-id=" + failed[0].OperationID); !slices.Equal(got.OldOperations, []string{failed[0].OperationID}) || len(got.RetryShoots) > 0 {
		t.Errorf("answer: %+v", got)
	}
	var old shownMember
	f.get("/orchestrations/"+id+"/operations/"+failed[0].OperationID, &old)
	if again := f.members(id, "&state=in%20progress")[0]; old.RetriedAs != again.OperationID || again.OperationID == failed[0].OperationID {
		t.Errorf("the failed operation is repeated by %q, in progress is %q", old.RetriedAs, again.OperationID)
	}
	close(open)
	f.awaitOrchestration(id, "failed")
	f.awaitStats(id, map[string]int{"succeeded": 3, "failed": 2})

	// A newer upgrade of an instance makes the older one old.
	newer := f.upgrade("kyma", `{"targets": {"include": [{"instanceID": "i-00002"}]}}`)
	f.awaitOrchestration(newer, "succeeded")
	got = retry("")
	want = answer{
		OrchestrationID: id, Msg: "retry operations are queued for processing", RetryShoots: []string{"c-00003"},
		OldOperations: []string{failed[1].OperationID}, InvalidOperations: []string{},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	testkit.Eventually(t, patience, "every retried operation has succeeded", func() bool {
		return maps.Equal(f.orchestration(id).OperationStats, map[string]int{"succeeded": 4, "failed": 1})
	})
	f.awaitOrchestration(id, "failed")
	if got := retry(""); got.Msg != "there is no failed operation to retry" || len(got.OldOperations) != 1 {
		t.Errorf("answer: %+v", got)
	}
}

func TestOrchestration_OperatorRetry_IsIncluded(t *testing.T) {
	f := newFakeBroker(t, 2)
	f.start()
	f.script.set("Upgrade", failing)
	id := f.upgradeAll(2)
	f.awaitOrchestration(id, "failed")
	f.script.set("Upgrade", done)
	for i, m := range f.members(id, "") {
		if code, text := f.post("/operations/"+m.OperationID+"/retry", `{"by":"me"}`); code != http.StatusNoContent {
			t.Fatalf("retry: %d %s", code, text)
		}
		f.awaitStats(id, []map[string]int{{"succeeded": 1, "failed": 1}, {"succeeded": 2}}[i])
	}
	if o := f.awaitOrchestration(id, "succeeded"); o.Description != "2 succeeded" {
		t.Errorf("description: %q", o.Description)
	}
	// An operation that a newer one has repeated cannot be retried.
	f.script.set("Upgrade", failing)
	again := f.upgrade("kyma", `{"targets": {"include": [{"instanceID": "i-00000"}]}}`)
	f.awaitOrchestration(again, "failed")
	old := f.members(again, "")[0]
	f.call(http.MethodPost, "/orchestrations/"+again+"/retry", "application/x-www-form-urlencoded", "", http.StatusAccepted, nil)
	f.awaitOrchestration(again, "failed")
	if code, text := f.post("/operations/"+old.OperationID+"/retry", `{"by":"me"}`); code != http.StatusConflict {
		t.Errorf("retry of a repeated operation: %d %s", code, text)
	}
}

func TestEvents_Operations_AreReported(t *testing.T) {
	f := newFakeBroker(t, 0)
	f.start()
	f.script.set("Second", failing)
	broken, other := operation(event.Provision, "i-1", "azure"), operation(event.Update, "i-1", "azure")
	f.request(broken)
	f.await(broken, event.Failed)
	f.request(other)
	f.await(other, event.Succeeded)
	type shown struct{ ID, Level, InstanceID, OperationID, Message, CreatedAt string }
	read := func(query string) (lines []string) {
		var events []shown
		f.get("/events?"+query, &events)
		for _, e := range events {
			if e.ID == "" || e.InstanceID != "i-1" || e.CreatedAt == "" {
				t.Errorf("event: %+v", e)
			}
			lines = append(lines, e.Level+" "+e.Message)
		}
		return lines
	}
	want := []string{
		"info operation started", "info start/Starting succeeded", "info create/First succeeded",
		"error create/Second failed: ext is broken", "error create/Second operation failed: ext is broken",
	}
	if diff := cmp.Diff(want, read("operation_ids="+broken.ID)); diff != "" {
		t.Errorf("events of the operation (-want +got):\n%s", diff)
	}
	want = append(want, "info operation started", "info change/Change succeeded", "info operation succeeded")
	if diff := cmp.Diff(want, read("instance_ids=nobody,i-1")); diff != "" {
		t.Errorf("events of the instance (-want +got):\n%s", diff)
	}
	if got := read("instance_ids=i-1&operation_ids=" + other.ID); len(got) != 3 {
		t.Errorf("events of both: %v", got)
	}
	if got := read("operation_ids=nonsense"); got != nil {
		t.Errorf("events of no operation: %v", got)
	}
}
