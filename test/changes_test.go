package test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

func TestChanges_Killed_Continue(t *testing.T) {
	t.Parallel()
	const machineType = "Standard_D8_v3"
	rnd := random(t)
	sys := harness.Start(t, harness.Options{Env: lookUps})
	azures, trials := make([]*harness.Order, 6), make([]*harness.Order, 6)
	ids := map[string]*harness.Order{}
	for i := range azures {
		azures[i], trials[i] = harness.Azure(), harness.Trial()
		ids[sys.Provision(azures[i])], ids[sys.Provision(trials[i])] = azures[i], trials[i]
	}
	for id, o := range ids {
		sys.PollEnd(o, id, osb.StateSucceeded, limit)
	}
	names := map[*harness.Order]string{}
	for _, o := range trials {
		names[o], _, _ = shootOf(t, sys, o)
	}
	before := sys.Created()
	for _, system := range []string{"avs", "edp", "provisioner", "director", "reconciler", "control-plane", "gardener", "runtimes"} {
		sys.Fault(system, `{"latencyMs": 40}`)
	}

	changes := map[string]*harness.Order{}
	for i, o := range azures {
		o.ClientSecret = "another secret"
		changes[sys.Update(o, osbclient.Change{Context: o.Body().Context, Parameters: map[string]any{"machineType": machineType}})] = o
		changes[sys.Update(trials[i], active(false))] = trials[i]
		changes[sys.Update(trials[i], active(true))] = trials[i] // waits for the suspension
	}
	killAt(t, sys, changes, rnd.Float64()*0.7)
	wait(t, time.Duration(rnd.Int64N(int64(50*time.Millisecond))))
	sys.Kill()
	sys.Start()
	for id, o := range changes {
		sys.PollEnd(o, id, osb.StateSucceeded, limit)
		if op := sys.AwaitEnd(id, "succeeded", limit); len(op.RanAgain()) > 0 || len(op.NotCompleted) > 0 {
			t.Errorf("%s %s: ran again: %v, not completed: %v", op.Type, id, op.RanAgain(), op.NotCompleted)
		}
	}
	for i, o := range azures {
		checkFootprint(t, sys, o, harness.Complete())
		if got := shown(t, sys, o)["machineType"]; got != machineType || clusterOf(t, sys, o).GardenerConfig.MachineType != machineType {
			t.Errorf("%v is shown, the cluster is %+v", got, clusterOf(t, sys, o))
		}
		if got := managed(t, sys, o, "any")["clientsecret"]; got != o.ClientSecret {
			t.Errorf("the runtime has the %s", got)
		}
		checkFootprint(t, sys, trials[i], trialFootprint())
		if name, _, _ := shootOf(t, sys, trials[i]); name != names[trials[i]] {
			t.Errorf("shoot %s came back as %s", names[trials[i]], name)
		}
	}
	// Only the trials that came back were made anew.
	after, made := sys.Created(), map[string]int{}
	want := trialFootprint().Created(len(trials))
	exceptEDP(t, want, before, after)
	for key := range want {
		made[key] = after[key] - before[key]
	}
	if diff := cmp.Diff(want, made); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	checkCount(t, sys, len(ids)+len(changes))
}

// killAt waits until a share of the operations has ended, while others have not.
func killAt(t *testing.T, sys *harness.System, ids map[string]*harness.Order, share float64) {
	t.Helper()
	ended := 0
	testkit.Eventually(t, limit, "the moment of a kill", func() bool {
		ended = 0
		for _, op := range sys.Operations() {
			if ids[op.ID] != nil && op.Final() {
				ended++
			}
		}
		return float64(ended) >= share*float64(len(ids))
	})
	t.Logf("killed when %d of %d have ended", ended, len(ids))
}

func TestUpgrade_UpdateWaitsAndDeletionCancels(t *testing.T) {
	t.Parallel()
	sys, orders := provisionRuntimes(t, 2)
	updated, deleted := orders[0], orders[1]
	sys.Fault("reconciler", hanging)
	id := upgrade(t, sys, "kyma", "--version", nextKyma)
	held := map[string]string{}
	for _, op := range awaitHeld(t, sys, "upgradeKyma", "Apply_Cluster_Configuration") {
		held[op.InstanceID] = op.ID
	}
	update := sys.Update(updated, parameters(map[string]any{"machineType": "Standard_D8_v3"}))
	deprovision := sys.Deprovision(deleted)
	for _, waiting := range []struct{ id, upgrade string }{{update, held[updated.InstanceID]}, {deprovision, held[deleted.InstanceID]}} {
		sys.Await(waiting.id, limit, "a wait for the upgrade", func(op *harness.Operation) bool {
			return op.State == "pending" && op.WaitingFor == "instance busy with operation "+waiting.upgrade
		})
	}
	// The platform does not see upgrades.
	if last, err := sys.Platform().LastOperation(t.Context(), updated.InstanceID, ""); err != nil || last.State != osb.StateInProgress {
		t.Errorf("the newest operation is %+v, %v", last, err)
	}
	sys.Fault("reconciler", healthy)
	sys.PollEnd(updated, update, osb.StateSucceeded, limit)
	sys.PollEnd(deleted, deprovision, osb.StateSucceeded, limit)
	for _, waited := range []struct{ id, upgrade, end string }{
		{update, held[updated.InstanceID], "succeeded"}, {deprovision, held[deleted.InstanceID], "cancelled"},
	} {
		ended := sys.AwaitEnd(waited.upgrade, waited.end, limit).FinishedAt
		if op := sys.Operation(waited.id); op.StartedAt.Before(*ended) {
			t.Errorf("the %s began at %s, before the upgrade had ended at %s", op.Type, op.StartedAt, ended)
		}
	}
	awaitOrchestration(t, sys, id, "succeeded", map[string]int{"succeeded": 1, "canceled": 1})
	checkNothingLeft(t, sys, deleted)
	checkFootprint(t, sys, updated, harness.Complete())
	checkKyma(t, sys, orders[:1], nextKyma)
	checkActive(t, sys, orders[:1])
}
