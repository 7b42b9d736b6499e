package test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

// clients is how many ask at the same time in these tests.
const clients = 50

// The answers that crowd returns.
const (
	accepted = "202"
	busy     = "422 ConcurrencyError"
)

// crowd lets many clients ask at the same time, and counts the answers. operations are those that they were given.
func crowd(t *testing.T, ask func(client int) (*osbclient.Answer, error)) (answers map[string]int, operations []string) {
	t.Helper()
	var (
		mu    sync.Mutex
		all   sync.WaitGroup
		start = make(chan struct{})
		given = map[string]bool{}
	)
	answers = map[string]int{}
	for client := range clients {
		all.Go(func() {
			<-start
			answer, err := ask(client)
			mu.Lock()
			defer mu.Unlock()
			e, refused := errors.AsType[*osb.Error](err)
			switch {
			case refused:
				answers[strings.TrimSpace(fmt.Sprintf("%d %s", e.Status, e.Code))]++
			case err != nil:
				answers[err.Error()]++
			case answer.Async:
				answers[accepted]++
				given[answer.Operation] = true
			default:
				answers["200"]++
			}
		})
	}
	close(start)
	all.Wait()
	return answers, slices.Sorted(maps.Keys(given))
}

// wantAnswers wants those answers, with one operation if any was accepted, and that many new operations; it returns the operation.
func wantAnswers(t *testing.T, sys *harness.System, before int, want map[string]int, ask func(client int) (*osbclient.Answer, error)) string {
	t.Helper()
	answers, operations := crowd(t, ask)
	if diff := cmp.Diff(want, answers); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	one := 0
	if want[accepted] > 0 {
		one = 1
	}
	if len(operations) != one {
		t.Fatalf("%d operations were told, want %d: %v", len(operations), one, operations)
	}
	if one == 0 {
		checkCount(t, sys, before)
		return ""
	}
	// The orchestrator takes it from the bus a moment after the answer.
	sys.Await(operations[0], limit, "the operation", func(*harness.Operation) bool { return true })
	checkCount(t, sys, before+1)
	return operations[0]
}

func checkCount(t *testing.T, sys *harness.System, want int) {
	t.Helper()
	if got := sys.OperationCount(); got != want {
		t.Errorf("%d operations, want %d", got, want)
	}
}

func machines(machineType string) osbclient.Change {
	return osbclient.Change{ServiceID: harness.ServiceID, Parameters: map[string]any{"machineType": machineType}}
}

func TestParallel_Updates_GetOneOperation(t *testing.T) {
	t.Parallel()
	sys := harness.Start(t, harness.Options{Race: true})
	o := harness.Azure()
	platform := sys.Platform()
	sys.PollEnd(o, sys.Provision(o), osb.StateSucceeded, limit)
	types := []string{"Standard_D8_v3", "Standard_D16_v3"}
	update := func(client int) (*osbclient.Answer, error) {
		return platform.Update(t.Context(), o.InstanceID, machines(types[client%2]))
	}

	// Two types of operations: the first request wins.
	sys.Fault("provisioner", hanging)
	answers, operations := crowd(t, update)
	if diff := cmp.Diff(map[string]int{accepted: clients / 2, busy: clients / 2}, answers); diff != "" || len(operations) != 1 {
		t.Fatalf("operations %v, answers (-want +got):\n%s", operations, diff)
	}
	sys.Fault("provisioner", healthy)
	sys.PollEnd(o, operations[0], osb.StateSucceeded, limit)
	checkCount(t, sys, 2)
	first, ok := shown(t, sys, o)["machineType"].(string)
	if !ok || !slices.Contains(types, first) || clusterOf(t, sys, o).GardenerConfig.MachineType != first {
		t.Errorf("%q is shown, the cluster is %+v", first, clusterOf(t, sys, o))
	}

	// Equal requests get the same operation.
	sys.Fault("provisioner", hanging)
	other := types[0]
	if first == other {
		other = types[1]
	}
	same := wantAnswers(t, sys, 2, map[string]int{accepted: clients}, func(int) (*osbclient.Answer, error) {
		return platform.Update(t.Context(), o.InstanceID, machines(other))
	})
	sys.Fault("provisioner", healthy)
	sys.PollEnd(o, same, osb.StateSucceeded, limit)
	if got := clusterOf(t, sys, o).GardenerConfig.MachineType; got != other {
		t.Errorf("the cluster has %s, want %s", got, other)
	}

	// After its end the same request starts no operation.
	wantAnswers(t, sys, 3, map[string]int{"200": clients}, func(int) (*osbclient.Answer, error) {
		return platform.Update(t.Context(), o.InstanceID, machines(other))
	})
	checkFootprint(t, sys, o, harness.Complete())

	// A deletion does not wait for an update.
	sys.Fault("provisioner", hanging)
	last := sys.Update(o, machines(first))
	deprovision := wantAnswers(t, sys, 4, map[string]int{accepted: clients}, func(int) (*osbclient.Answer, error) {
		return platform.Deprovision(t.Context(), o.InstanceID, harness.ServiceID, o.PlanID)
	})
	sys.PollEnd(o, last, osb.StateFailed, limit)
	sys.Fault("provisioner", healthy)
	sys.PollEnd(o, deprovision, osb.StateSucceeded, limit)
	sys.AwaitEnd(last, "cancelled", limit)
	checkNothingLeft(t, sys, o)
}

func TestParallel_RequestsDuringProvisioning_AreConsistent(t *testing.T) {
	t.Parallel()
	sys := harness.Start(t, harness.Options{Race: true})
	o := harness.Azure()
	platform := sys.Platform()
	// The cluster already exists, and must be removed.
	sys.Fault("reconciler", hanging)
	provision := wantAnswers(t, sys, 0, map[string]int{accepted: clients}, func(int) (*osbclient.Answer, error) {
		return platform.Provision(t.Context(), o.InstanceID, o.Body())
	})
	sys.Await(provision, limit, "Create_Cluster_Configuration", func(op *harness.Operation) bool {
		return op.Step == "Create_Cluster_Configuration"
	})
	wantAnswers(t, sys, 1, map[string]int{busy: clients}, func(int) (*osbclient.Answer, error) {
		return platform.Update(t.Context(), o.InstanceID, machines("Standard_D8_v3"))
	})

	// A deprovisioning is accepted at once.
	deprovision := wantAnswers(t, sys, 1, map[string]int{accepted: clients}, func(int) (*osbclient.Answer, error) {
		return platform.Deprovision(t.Context(), o.InstanceID, harness.ServiceID, o.PlanID)
	})
	if deprovision == provision {
		t.Fatal("the deprovisioning is the provisioning")
	}
	wantAnswers(t, sys, 2, map[string]int{busy: clients}, func(int) (*osbclient.Answer, error) {
		return platform.Provision(t.Context(), o.InstanceID, o.Body())
	})
	sys.Fault("reconciler", healthy)
	sys.PollEnd(o, deprovision, osb.StateSucceeded, limit)
	if op := sys.AwaitEnd(provision, "cancelled", limit); len(op.RanAgain()) > 0 {
		t.Errorf("ran again: %v", op.RanAgain())
	}
	sys.PollEnd(o, provision, osb.StateFailed, limit)
	// The cancelled call may still take effect, so the instance is kept and will be deprovisioned again.
	op := sys.AwaitEnd(deprovision, "succeeded", limit)
	if diff := cmp.Diff([]string{"Remove_Instance"}, op.NotCompleted); diff != "" || op.At(t, "Remove_Instance").Error.Reason != "err_keb_unsettled" {
		t.Errorf("not completed (-want +got):\n%s", diff)
	}
	checkNothingLeft(t, sys, o)
	testkit.Eventually(t, limit, "410", func() bool {
		_, err := platform.Deprovision(t.Context(), o.InstanceID, harness.ServiceID, o.PlanID)
		return harness.StatusOf(err) == harness.Gone
	})
	checkCount(t, sys, 2)

	// The instance can be ordered again.
	again := wantAnswers(t, sys, 2, map[string]int{accepted: clients}, func(int) (*osbclient.Answer, error) {
		return platform.Provision(t.Context(), o.InstanceID, o.Body())
	})
	sys.PollEnd(o, again, osb.StateSucceeded, limit)
	if footprint := sys.Footprints([]*harness.Order{o})[0]; !cmp.Equal(footprint, harness.Complete()) {
		// The released account may still exist beside the new one.
		footprint["gardener/SecretBinding"] = 1
		if diff := cmp.Diff(harness.Complete(), footprint); diff != "" {
			t.Errorf("in the landscape (-want +got):\n%s", diff)
		}
	}
}

func TestParallel_SuspendAndResume_AreConsistent(t *testing.T) {
	t.Parallel()
	sys := harness.Start(t, harness.Options{Race: true})
	o := harness.Trial()
	platform := sys.Platform()
	ask := func(of func(client int) bool) func(client int) (*osbclient.Answer, error) {
		return func(client int) (*osbclient.Answer, error) {
			change := active(of(client))
			change.ServiceID = harness.ServiceID
			return platform.Update(t.Context(), o.InstanceID, change)
		}
	}
	sys.PollEnd(o, sys.Provision(o), osb.StateSucceeded, limit)
	allAccepted := map[string]int{accepted: clients}

	// Equal requests get the same operation. The unsuspension waits until the suspension has ended.
	sys.Fault("provisioner", hanging)
	suspension := wantAnswers(t, sys, 1, allAccepted, ask(func(int) bool { return false }))
	back := wantAnswers(t, sys, 2, allAccepted, ask(func(int) bool { return true }))
	sys.Fault("provisioner", healthy)
	sys.PollEnd(o, back, osb.StateSucceeded, limit)
	sys.AwaitEnd(suspension, "succeeded", limit)
	checkFootprint(t, sys, o, trialFootprint())
	checkStatus(t, sys, o, "", "succeeded")

	// Of contradicting requests the last one applies.
	answers, operations := crowd(t, ask(func(client int) bool { return client%2 == 0 }))
	for answer := range answers {
		if answer != accepted && answer != "200" {
			t.Errorf("answered %s: %v", answer, answers)
		}
	}
	// The orchestrator reads the requests from the bus one after the other.
	for _, id := range operations {
		sys.Await(id, limit, "the end of operation "+id, (*harness.Operation).Final)
	}
	all := sys.Operations()
	t.Logf("%v; %d operations, the newest is %s", answers, len(all), all[0].Type)
	checkOrder(t, all)
	sys.PollEnd(o, all[0].ID, osb.StateSucceeded, limit)
	if all[0].Type == "provision" {
		checkFootprint(t, sys, o, trialFootprint())
		checkStatus(t, sys, o, "", "succeeded")
	} else {
		checkFootprint(t, sys, o, harness.Footprint{})
		checkStatus(t, sys, o, "suspended", "suspended")
		sys.PollEnd(o, sys.Update(o, active(true)), osb.StateSucceeded, limit)
		checkFootprint(t, sys, o, trialFootprint())
	}
	shootOf(t, sys, o)
	sys.PollEnd(o, sys.Deprovision(o), osb.StateSucceeded, limit)
	checkFootprint(t, sys, o, harness.Footprint{})
}

// checkOrder checks that the operations of an instance, newest first, ran one after the other in the order of their requests.
func checkOrder(t *testing.T, operations []harness.Operation) {
	t.Helper()
	var later *harness.Operation
	for i := range operations {
		op := &operations[i]
		if op.StartedAt == nil {
			continue // it was cancelled while it waited
		}
		if later != nil && op.FinishedAt != nil && later.StartedAt.Before(*op.FinishedAt) {
			t.Errorf("%s %s began at %s, before %s %s, which came first, had ended at %s",
				later.Type, later.ID, later.StartedAt, op.Type, op.ID, op.FinishedAt)
		}
		later = op
	}
}
