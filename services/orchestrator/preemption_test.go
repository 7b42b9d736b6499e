package orchestrator_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

// upgradeProcesses have a finally stage, like the real upgrades.
var upgradeProcesses = fstest.MapFS{
	"provision.yaml": testProcesses["provision.yaml"], "deprovision.yaml": testProcesses["deprovision.yaml"],
	"update.yaml":      twoSteps("update", ""),
	"upgradeKyma.yaml": twoSteps("upgradeKyma", finallyLast), "upgradeCluster.yaml": twoSteps("upgradeCluster", finallyLast),
}

const finallyLast = "finally: [{name: Last, worker: beta, retry: {every: 50ms}}]\n"

func twoSteps(operation, finally string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte(`
operation: ` + operation + `
timeout: 1h
stages:
  - name: change
    steps:
      - {name: Change, worker: alpha, retry: {every: 50ms, timeout: 10m}}
      - {name: Poll, worker: beta, retry: {every: 50ms, timeout: 10m}}
` + finally)}
}

func TestDeprovision_RunningOperation_IsCancelledAtNextResult(t *testing.T) {
	for _, c := range []struct {
		kind, queued event.OperationType
		step         string
		last         int
		want         []string
	}{
		{event.Provision, event.Update, "First", 0, []string{"operation started", "Starting succeeded", "First succeeded", "operation cancelled"}},
		{event.Update, event.Update, "Change", 0, []string{"operation started", "Change succeeded", "operation cancelled"}},
		{event.UpgradeKyma, event.UpgradeKyma, "Change", 1, []string{"operation started", "Change succeeded", "operation ending", "Last succeeded", "operation cancelled"}},
		{event.UpgradeCluster, event.UpgradeCluster, "Change", 1, []string{"operation started", "Change succeeded", "operation ending", "Last succeeded", "operation cancelled"}},
	} {
		t.Run(string(c.kind), func(t *testing.T) {
			s := newSystem(t)
			s.cfg.Processes = upgradeProcesses
			s.start()
			open := make(gate)
			s.script.set(c.step, func(ctx context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
				if err := op.SaveDetails(map[string]string{"id": "made"}); err != nil {
					return op, 0, err
				}
				return open.step(context.WithoutCancel(ctx), op) // it does not end early
			})
			var seen map[string]string
			s.script.set("Remove_First", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
				return op, 0, op.Details("alpha", &seen)
			})
			running, queued := operation(c.kind, "i-1", "azure"), operation(c.queued, "i-1", "azure")
			s.request(running)
			testkit.Eventually(t, patience, "the first step runs", func() bool { return s.script.count(c.step) > 0 })
			s.request(queued)
			s.await(queued, event.Pending)
			remove := operation(event.Deprovision, "i-1", "azure")
			s.request(remove)
			s.await(queued, event.Cancelled)
			s.await(remove, event.Pending)
			var shown struct{ CancelRequested string }
			s.get("/operations/"+running.ID, &shown)
			if want := "preempted by deprovisioning " + remove.ID; shown.CancelRequested != want {
				t.Errorf("cancel requested: %q, want %q", shown.CancelRequested, want)
			}
			close(open)
			s.await(running, event.Cancelled)
			s.await(remove, event.Succeeded)
			if diff := cmp.Diff(c.want, s.history(running.ID)); diff != "" {
				t.Errorf("history (-want +got):\n%s", diff)
			}
			if n := s.script.count("Last"); n != c.last {
				t.Errorf("the finally stage ran %d times, want %d", n, c.last)
			}
			if seen["id"] != "made" {
				t.Errorf("the deprovisioning has details %v, want those of the cancelled operation", seen)
			}
			testkit.Eventually(t, patience, "the instance is removed", func() bool {
				var left int
				require.NoError(t, s.db.Get(&left, `SELECT count(*) FROM orchestrator.instances`))
				return left == 0
			})
		})
	}
}

func TestDeprovision_RetryingUpgrade_IsCancelledAtOnce(t *testing.T) {
	s := newSystem(t)
	s.cfg.Processes = upgradeProcesses
	s.start()
	s.script.set("Change", hourly)
	upgrade, remove := operation(event.UpgradeKyma, "i-1", "azure"), operation(event.Deprovision, "i-1", "azure")
	s.request(upgrade)
	testkit.Eventually(t, patience, "the upgrade waits", func() bool {
		return slices.Contains(s.factsOf(upgrade.ID), string(event.TypeStepFinished)+" Change retry")
	})
	s.request(remove)
	s.await(upgrade, event.Cancelled)
	s.await(remove, event.Succeeded)
	if n := s.script.count("Last"); n != 1 {
		t.Errorf("the finally stage ran %d times, want once", n)
	}
}

// A later update counts even if it was cancelled: the platform requested values other than those of the failed update.
func TestRetry_UpdateWithLaterUpdate_IsRejected(t *testing.T) {
	s := newSystem(t)
	s.start()
	s.script.set("Change", failing)
	first, later := operation(event.Update, "i-1", "azure"), operation(event.Update, "i-1", "azure")
	s.request(first)
	s.await(first, event.Failed)
	s.script.set("Change", hourly)
	s.request(later)
	testkit.Eventually(t, patience, "the later update waits", func() bool {
		return slices.Contains(s.factsOf(later.ID), string(event.TypeStepFinished)+" Change retry")
	})
	refused := func() {
		t.Helper()
		code, text := s.post("/operations/"+first.ID+"/retry", `{"by":"me"}`)
		if want := "the instance has the newer operation " + later.ID; code != http.StatusConflict || !strings.Contains(text, want) {
			t.Errorf("retry: %d %s, want 409 and %q", code, text, want)
		}
	}
	refused()
	if code, text := s.post("/operations/"+later.ID+"/cancel", `{"by":"me"}`); code != http.StatusNoContent {
		t.Fatalf("cancel: %d %s", code, text)
	}
	s.await(later, event.Cancelled)
	refused()
}

// The statuses of 440 operations with errors of 2,400 bytes do not fit into one message.
func TestAskOperations_LongErrors_AreAnsweredInParts(t *testing.T) {
	s := newSystem(t)
	s.orchestrator()
	s.populate(500)
	_, err := s.db.Exec(`UPDATE orchestrator.operations SET message = repeat('x', 2400)`)
	require.NoError(t, err)
	var left []string
	require.NoError(t, s.db.Select(&left, `SELECT id FROM orchestrator.operations`))
	questions, known := 0, map[string]bool{}
	for ; len(left) > 0; questions++ {
		var answer event.OperationsAnswer
		require.NoError(t, s.bus.Ask(t.Context(), event.AskOperations, event.OperationsRequest{IDs: left}, &answer))
		if len(answer.Operations) == 0 {
			t.Fatal("an answer contains no operation")
		}
		for _, o := range answer.Operations {
			known[o.OperationID] = true
		}
		left = answer.Left
	}
	if questions != 2 || len(known) != 500 {
		t.Errorf("%d operations in %d answers, want 500 in 2", len(known), questions)
	}
}
