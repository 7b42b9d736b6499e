package test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

// nextKyma is the version that the landscape has besides the one it provisions.
const nextKyma = "2.21.0"

// hanging makes a system keep requests until the settings change.
const hanging = `{"timeout": true}`

// workers is how many upgrades may run at the same time in these tests.
const workers = 2

// provisionRuntimes starts a system with n runtimes.
func provisionRuntimes(t *testing.T, n int) (*harness.System, []*harness.Order) {
	t.Helper()
	sys := harness.Start(t, harness.Options{})
	orders := make([]*harness.Order, n)
	ids := make([]string, n)
	for i := range orders {
		orders[i] = harness.Azure()
		ids[i] = sys.Provision(orders[i])
	}
	for i, o := range orders {
		sys.PollEnd(o, ids[i], osb.StateSucceeded, limit)
	}
	return sys, orders
}

// keb runs a command, wants that exit code and, if it is 0, JSON.
func keb(t *testing.T, sys *harness.System, into any, code int, args ...string) string {
	t.Helper()
	process := sys.Run(append(args, "-o", "json")...)
	if got := process.ExitCode(limit); got != code {
		t.Fatalf("keb %v ended with %d, want %d:\n%s", args, got, code, process.Output())
	}
	if into != nil {
		require.NoErrorf(t, json.Unmarshal([]byte(process.Output()), into), "keb %v printed %q", args, process.Output())
	}
	return process.Output()
}

type orchestration struct {
	ID             string `json:"orchestrationID"`
	State          string
	Description    string
	OperationStats map[string]int
}

// member is an operation of an orchestration.
type member struct {
	OperationID, InstanceID, State, Description, RetriedAs string
}

// upgrade starts an orchestration of all runtimes, and returns its id.
func upgrade(t *testing.T, sys *harness.System, args ...string) string {
	t.Helper()
	var o orchestration
	keb(t, sys, &o, 0, append([]string{"upgrade", args[0], "--target", "all", "--parallel-workers", "2"}, args[1:]...)...)
	return o.ID
}

func orchestrationOf(t *testing.T, sys *harness.System, id string) orchestration {
	t.Helper()
	var o orchestration
	keb(t, sys, &o, 0, "orchestrations", id)
	return o
}

func membersOf(t *testing.T, sys *harness.System, id string) []member {
	t.Helper()
	var list struct{ Data []member }
	keb(t, sys, &list, 0, "orchestrations", id, "operations")
	return list.Data
}

// awaitOrchestration waits until an orchestration has ended and wants it in that state, with that many operations by state.
func awaitOrchestration(t *testing.T, sys *harness.System, id, state string, stats map[string]int) {
	t.Helper()
	address := "http://" + sys.OperatorAddr + "/orchestrations/" + id
	testkit.Eventually(t, limit, "the end of the orchestration", func() bool {
		return slices.Contains([]string{"succeeded", "failed", "canceled"}, harness.Get[orchestration](sys, address).State)
	})
	got := orchestrationOf(t, sys, id)
	if got.State != state || !maps.Equal(got.OperationStats, stats) {
		t.Errorf("the orchestration is %s (%s) with %v, want %s with %v", got.State, got.Description, got.OperationStats, state, stats)
	}
}

// evaluations are the states of the evaluations of an instance.
func evaluations(sys *harness.System, instance string) []string {
	var states []string
	for _, object := range sys.Objects("avs", "evaluation", instance) {
		var e struct{ Status string }
		object.Into(sys, &e)
		states = append(states, e.Status)
	}
	return states
}

// upgrades are the upgrades that there are, oldest first.
func upgrades(sys *harness.System, kind string) []harness.Operation {
	all := slices.DeleteFunc(sys.Operations(), func(op harness.Operation) bool { return string(op.Type) != kind })
	slices.Reverse(all)
	return all
}

// checkParallel wants at most that many operations at any time, and as many at some time.
func checkParallel(t *testing.T, operations []harness.Operation) {
	t.Helper()
	most := 0
	for _, at := range operations {
		n := 0
		for _, op := range operations {
			if op.StartedAt != nil && op.FinishedAt != nil && !op.StartedAt.After(*at.StartedAt) && op.FinishedAt.After(*at.StartedAt) {
				n++
			}
		}
		most = max(most, n)
	}
	if most != workers {
		t.Errorf("%d upgrades ran at the same time, want %d", most, workers)
	}
}

// awaitHeld waits until as many upgrades as may run are at that step, and returns them.
func awaitHeld(t *testing.T, sys *harness.System, kind, step string) []harness.Operation {
	t.Helper()
	var held []harness.Operation
	testkit.Eventually(t, limit, "upgrades at "+step, func() bool {
		held = slices.DeleteFunc(upgrades(sys, kind), func(op harness.Operation) bool { return op.Final() || op.Step != step })
		return len(held) == workers
	})
	return held
}

func TestOrchestration_Parallelism_IsLimited(t *testing.T) {
	t.Parallel()
	sys, orders := provisionRuntimes(t, 6)
	listeners := []*listener{listen(t, sys, "cloudevents"), listen(t, sys, "cloudevents-binary")}
	before := sys.Created()

	// A dry run does everything but change something.
	dry := upgrade(t, sys, "kyma", "--version", nextKyma, "--dry-run", "--notification")
	awaitOrchestration(t, sys, dry, "succeeded", map[string]int{"succeeded": 6})
	if diff := cmp.Diff(before, sys.Created()); diff != "" {
		t.Errorf("a dry run has made something (-before +after):\n%s", diff)
	}
	checkKyma(t, sys, orders, "2.20.0")

	// One runtime cannot be upgraded; the others can.
	bad := orders[3]
	sys.Fail("reconciler", bad.InstanceID)
	sys.Fault("reconciler", hanging)
	id := upgrade(t, sys, "kyma", "--version", nextKyma, "--notification")
	maintained := map[string]bool{}
	for _, op := range awaitHeld(t, sys, "upgradeKyma", "Apply_Cluster_Configuration") {
		maintained[op.InstanceID] = true
	}
	for _, o := range orders {
		want := []string{"ACTIVE", "ACTIVE"}
		if maintained[o.InstanceID] {
			want = []string{"MAINTENANCE", "MAINTENANCE"}
		}
		if diff := cmp.Diff(want, evaluations(sys, o.InstanceID)); diff != "" {
			t.Errorf("the evaluations of an instance (being upgraded: %t) meanwhile (-want +got):\n%s", maintained[o.InstanceID], diff)
		}
	}
	sys.Fault("reconciler", healthy)
	awaitOrchestration(t, sys, id, "failed", map[string]int{"succeeded": 5, "failed": 1})
	for _, l := range listeners {
		l.await(t, id, "failed", 1)
	}
	running := upgrades(sys, "upgradeKyma")[6:]
	if len(running) != 6 {
		t.Fatalf("%d upgrades, want 6", len(running))
	}
	checkParallel(t, running)
	for _, m := range membersOf(t, sys, id) {
		if failed := m.State == "failed"; failed != (m.InstanceID == bad.InstanceID) {
			t.Errorf("the upgrade of %s is %s (%s); the bad one is %s", m.InstanceID, m.State, m.Description, bad.InstanceID)
		}
	}
	checkActive(t, sys, orders)
	checkTold(t, sys, id, orders)

	// What has failed can be repeated when its reason is gone.
	sys.Fail("reconciler", "")
	var retried struct{ RetryShoots []string }
	keb(t, sys, &retried, 0, "orchestrations", id, "retry", "--now")
	if len(retried.RetryShoots) != 1 {
		t.Errorf("retried are %v, want one shoot", retried.RetryShoots)
	}
	testkit.Eventually(t, limit, "the retry", func() bool { return len(upgrades(sys, "upgradeKyma")) == 13 })
	awaitOrchestration(t, sys, id, "succeeded", map[string]int{"succeeded": 6})
	checkKyma(t, sys, orders, nextKyma)
	checkActive(t, sys, orders)
	for _, o := range orders {
		// The broker hears of it a moment later than the operator.
		testkit.Eventually(t, limit, "the runtime is shown with the new version", func() bool {
			found := sys.Runtimes(o, "")
			return len(found) == 1 && found[0].Status.State == "succeeded" && found[0].KymaVersion == nextKyma
		})
	}
	for i, footprint := range sys.Footprints(orders) {
		if diff := cmp.Diff(harness.Complete(), footprint); diff != "" {
			t.Errorf("instance %s (-want +got):\n%s", orders[i].InstanceID, diff)
		}
	}
}

// checkKyma wants every runtime to have a version of Kyma at the Reconciler.
func checkKyma(t *testing.T, sys *harness.System, orders []*harness.Order, version string) {
	t.Helper()
	for _, o := range orders {
		clusters := sys.Objects("reconciler", "cluster", o.InstanceID)
		if len(clusters) != 1 {
			t.Errorf("the Reconciler knows %d clusters of instance %s", len(clusters), o.InstanceID)
		}
		for _, object := range clusters {
			var cluster struct {
				KymaConfig struct{ Version string }
			}
			object.Into(sys, &cluster)
			if cluster.KymaConfig.Version != version {
				t.Errorf("instance %s has Kyma %s, want %s", o.InstanceID, cluster.KymaConfig.Version, version)
			}
		}
	}
}

func checkActive(t *testing.T, sys *harness.System, orders []*harness.Order) {
	t.Helper()
	for _, o := range orders {
		if diff := cmp.Diff([]string{"ACTIVE", "ACTIVE"}, evaluations(sys, o.InstanceID)); diff != "" {
			t.Errorf("the evaluations of instance %s (-want +got):\n%s", o.InstanceID, diff)
		}
	}
}

// checkTold wants one event for an orchestration in which the maintenance of every instance has ended.
func checkTold(t *testing.T, sys *harness.System, id string, orders []*harness.Order) {
	t.Helper()
	events := sys.Objects("spc", "event", id)
	if len(events) != 1 {
		t.Fatalf("%d events, want 1", len(events))
	}
	var event struct {
		EventType string
		Tenants   []struct{ InstanceID, EventState string }
	}
	events[0].Into(sys, &event)
	got, want := map[string]string{}, map[string]string{}
	for _, tenant := range event.Tenants {
		got[tenant.InstanceID] += tenant.EventState
	}
	for _, o := range orders {
		want[o.InstanceID] = "2"
	}
	if diff := cmp.Diff(want, got); diff != "" || event.EventType != "1" {
		t.Errorf("event of type %s (-want +got):\n%s", event.EventType, diff)
	}
}

func TestOrchestration_Canceled_FinishesOperationsInProgress(t *testing.T) {
	t.Parallel()
	const version = "1.99.1"
	sys, orders := provisionRuntimes(t, 6)
	sys.Fault("provisioner", hanging)
	id := upgrade(t, sys, "cluster", "--kubernetes-version", version)
	held := awaitHeld(t, sys, "upgradeCluster", "Upgrade_Cluster")
	keb(t, sys, nil, 0, "orchestrations", id, "cancel")
	if got := orchestrationOf(t, sys, id); got.State != "canceling" {
		t.Errorf("the orchestration is %s while upgrades run, want canceling", got.State)
	}
	sys.Fault("provisioner", healthy)
	awaitOrchestration(t, sys, id, "canceled", map[string]int{"succeeded": 2, "canceled": 4})
	upgraded := map[string]bool{}
	for _, op := range held {
		upgraded[op.InstanceID] = true
		sys.AwaitEnd(op.ID, "succeeded", limit)
	}
	for _, o := range orders {
		var cluster struct {
			GardenerConfig struct{ KubernetesVersion string }
		}
		sys.Objects("provisioner", "runtime", o.InstanceID)[0].Into(sys, &cluster)
		if got := cluster.GardenerConfig.KubernetesVersion; (got == version) != upgraded[o.InstanceID] {
			t.Errorf("a cluster has Kubernetes %s, upgraded: %t", got, upgraded[o.InstanceID])
		}
	}
	checkActive(t, sys, orders)
	if n := len(upgrades(sys, "upgradeCluster")); n != workers {
		t.Errorf("%d upgrades have begun, want %d", n, workers)
	}
	// A retry repeats what was cancelled with it.
	var retried struct{ RetryShoots []string }
	keb(t, sys, &retried, 0, "orchestrations", id, "retry")
	if len(retried.RetryShoots) != 4 {
		t.Errorf("retried are %v, want four shoots", retried.RetryShoots)
	}
	testkit.Eventually(t, limit, "the retry", func() bool { return len(upgrades(sys, "upgradeCluster")) == 6 })
	awaitOrchestration(t, sys, id, "succeeded", map[string]int{"succeeded": 6})
}

func TestOrchestration_Killed_Continues(t *testing.T) {
	t.Parallel()
	sys, orders := provisionRuntimes(t, 6)
	n := sys.OperationCount()
	sys.Fault("reconciler", `{"latencyMs": 100}`)
	id := upgrade(t, sys, "kyma", "--version", nextKyma)
	for _, ended := range []int{1, 3} {
		testkit.Eventually(t, limit, "a few upgrades", func() bool {
			final := 0
			for _, op := range upgrades(sys, "upgradeKyma") {
				if op.Final() {
					final++
				}
			}
			return final >= ended
		})
		sys.Kill()
		sys.Start()
	}
	awaitOrchestration(t, sys, id, "succeeded", map[string]int{"succeeded": 6})
	if got := sys.OperationCount() - n; got != 6 {
		t.Errorf("%d operations for 6 runtimes", got)
	}
	seen := map[string]bool{}
	for _, m := range membersOf(t, sys, id) {
		op := sys.Operation(m.OperationID)
		if problems := op.RanAgain(); len(problems) > 0 || op.State != "succeeded" || seen[op.InstanceID] {
			t.Errorf("the upgrade of %s is %s, another one seen: %t, ran again: %v", op.InstanceID, op.State, seen[op.InstanceID], problems)
		}
		seen[op.InstanceID] = true
	}
	if len(seen) != len(orders) {
		t.Errorf("%d runtimes were upgraded, want %d", len(seen), len(orders))
	}
	all := upgrades(sys, "upgradeKyma")
	slices.SortFunc(all, func(a, b harness.Operation) int { return a.StartedAt.Compare(*b.StartedAt) })
	checkParallel(t, all)
	checkKyma(t, sys, orders, nextKyma)
	checkActive(t, sys, orders)
	t.Logf("6 upgrades took %s", all[5].FinishedAt.Sub(*all[0].StartedAt))
}
