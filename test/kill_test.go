package test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

const (
	kills = 5
	// startingKill is the kill that hits a process which is still starting; lossKill the one after which the bus may be lost.
	lossKill, startingKill = 3, 4
	// transitions is what the cursor of a provisioning of plan azure comes to without a retry: 19 steps, the start and the end.
	transitions = 21
)

// lookUps let AvS be asked for an evaluation before one is created. Without that, which is the default, a worker that is killed between
// the call and its answer leaves one behind: test/steps holds that to one.
var lookUps = []string{"KEB_AVS_LOOK_UP=true", "KEB_LANDSCAPE_AVS_LOOK_UP=true"}

// The bus loses its data after the third of the five kills.
func TestKill_FiveKillsAndLostBus_OperationsSucceed(t *testing.T) {
	t.Parallel()
	rnd := random(t)
	// What was on the bus comes again when its execution limit is over, which is a minute otherwise.
	sys := harness.Start(t, harness.Options{Accounts: 2 * operations(t), Env: lookUps, Overlays: []string{"testdata/short-executions"}, Race: true})
	// Steps of a simulated landscape take no time at all; real ones are killed while they wait for an answer.
	for _, system := range []string{"avs", "edp", "provisioner", "director", "reconciler", "control-plane", "gardener", "runtimes"} {
		sys.Fault(system, `{"latencyMs": 40}`)
	}
	before := sys.Created()
	var orders []*harness.Order
	var ids []string
	order := func(more int) (all int) {
		for range more {
			o := harness.Azure()
			orders, ids = append(orders, o), append(ids, sys.Provision(o))
		}
		return len(orders)
	}
	order(operations(t))
	for n := 1; n <= kills; n++ {
		if n == startingKill {
			pause := time.Duration(rnd.Int64N(int64(1500 * time.Millisecond)))
			t.Logf("kill %d: %s after the start", n, pause)
			sys.Launch()
			wait(t, pause)
		} else {
			if n > 1 {
				sys.Start()
			}
			awaitMoment(t, sys, rnd, n, order)
		}
		sys.Kill()
		if n == lossKill {
			loseBus(t, sys)
		}
	}
	sys.Start()
	for i, o := range orders {
		sys.PollEnd(o, ids[i], osb.StateSucceeded, limit)
	}
	checkOnce(t, sys, orders, ids, before)
}

// loseBus deletes the store of the bus.
func loseBus(t *testing.T, sys *harness.System) {
	t.Helper()
	dir := filepath.Join(sys.DataDir, "nats")
	if entries, err := os.ReadDir(dir); err != nil || len(entries) == 0 {
		t.Errorf("the bus has no store in %s: %v", dir, err)
	}
	require.NoError(t, os.RemoveAll(dir))
}

// awaitMoment waits for a random moment: when a random share of all transitions is made, between those of the kill before and
// the one after, and up to 50 ms later. Some operations must still be in flight then: where all have ended before the test looks, as
// they may on a busy machine, it orders more.
func awaitMoment(t *testing.T, sys *harness.System, rnd *rand.Rand, n int, order func(more int) (all int)) {
	t.Helper()
	share := (float64(n-1) + rnd.Float64()) / (kills + 1)
	orders := order(0)
	made, running := 0, 0
	testkit.Eventually(t, limit, "the moment of a kill", func() bool {
		made, running = 0, 0
		all := sys.Operations()
		for _, op := range all {
			made += int(op.Cursor)
			if !op.Final() {
				running++
			}
		}
		if running == 0 && len(all) == orders {
			orders = order(orders/8 + 1)
		}
		return running > 0 && made >= int(share*float64(orders*transitions))
	})
	pause := time.Duration(rnd.Int64N(int64(50 * time.Millisecond)))
	t.Logf("kill %d: %s after transition %d of %d, with %d operations in flight", n, pause, made, orders*transitions, running)
	wait(t, pause)
}

// wait waits for a random time, because any moment may be tested.
func wait(t *testing.T, pause time.Duration) {
	t.Helper()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	<-timer.C
}

// exceptEDP excludes the registration at EDP from the objects that must have been created exactly once: after a conflict it is deleted and
// created again, as the contract of EDP demands.
func exceptEDP(t *testing.T, want, before, after map[string]int) {
	t.Helper()
	for _, key := range []string{"edp/dataTenant", "edp/metadata"} {
		if made := after[key] - before[key]; made < want[key] {
			t.Errorf("%s: %d were created, want at least %d", key, made, want[key])
		}
		delete(want, key)
	}
}

// checkOnce checks that every external object was created exactly once, and that no finished stage ran again.
func checkOnce(t *testing.T, sys *harness.System, orders []*harness.Order, ids []string, before map[string]int) {
	t.Helper()
	for i, footprint := range sys.Footprints(orders) {
		if diff := cmp.Diff(harness.Complete(), footprint); diff != "" {
			t.Errorf("instance %s (-want +got):\n%s", orders[i].InstanceID, diff)
		}
	}
	created := map[string]int{}
	after := sys.Created()
	want := harness.Complete().Created(len(orders))
	exceptEDP(t, want, before, after)
	for key := range want {
		created[key] = after[key] - before[key]
	}
	if diff := cmp.Diff(want, created); diff != "" {
		t.Errorf("ever created (-want +got):\n%s", diff)
	}
	repeated := 0
	for _, id := range ids {
		op := sys.Operation(id)
		if problems := op.RanAgain(); len(problems) > 0 {
			t.Errorf("operation %s: %v", id, problems)
		}
		if op.State != "succeeded" || len(op.NotCompleted) > 0 {
			t.Errorf("operation %s is %s, not completed: %v", id, op.State, op.NotCompleted)
		}
		for _, stage := range op.Stages {
			repeated += stage.Attempt - 1
		}
	}
	t.Logf("%d operations succeeded; unfinished stages were repeated %d times", len(ids), repeated)
}
