package orchestrator_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

// gate blocks a step until the test opens it.
type gate chan struct{}

func (g gate) step(ctx context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
	select {
	case <-g:
		return op, 0, nil
	case <-ctx.Done():
		return op, time.Second, nil
	}
}

func TestInstance_TwoOperations_RunOneAfterTheOther(t *testing.T) {
	s := newSystem(t)
	s.start()
	open := make(gate)
	s.script.set("Change", open.step)
	updates := []event.Operation{operation(event.Update, "i-1", "azure"), operation(event.Update, "i-1", "azure"), operation(event.Update, "i-1", "azure")}
	for _, op := range updates {
		s.request(op)
		want := event.Pending
		if op.ID == updates[0].ID {
			want = event.InProgress
		}
		s.await(op, want)
	}
	var page struct {
		Data []struct{ ID, WaitingFor string }
	}
	s.get("/operations?state=pending&instance=i-1", &page)
	if len(page.Data) != 2 || page.Data[0].WaitingFor != "instance busy with operation "+updates[0].ID {
		t.Errorf("pending operations: %+v", page.Data)
	}
	close(open)
	for _, op := range updates {
		s.await(op, event.Succeeded)
	}
	s.script.mu.Lock()
	defer s.script.mu.Unlock()
	if diff := cmp.Diff([]string{updates[0].ID + " Change", updates[1].ID + " Change", updates[2].ID + " Change"}, s.script.runs); diff != "" {
		t.Errorf("order of arrival (-want +got):\n%s", diff)
	}
}

func TestRequests_SameInstanceInOneBatch_KeepTheirOrder(t *testing.T) {
	s := newSystem(t)
	s.script.set("First", hourly)
	provision, remove := operation(event.Provision, "i-1", "azure"), operation(event.Deprovision, "i-1", "azure")
	s.request(provision, provision, remove, remove)
	s.start()
	s.await(remove, event.Succeeded)
	if got := s.state(provision.ID); got != event.Cancelled {
		t.Errorf("the provisioning is %s, want cancelled", got)
	}
}

func TestAdmission_Limit_KeepsTheOrder(t *testing.T) {
	s := newSystem(t)
	s.start()
	s.orchestrator() // the limit applies to all orchestrators
	s.applied("limits: [{name: updates, scope: {type: update}, operations: 2}]")
	open := make(gate)
	s.script.set("Change", open.step)
	var operations []event.Operation
	for _, instance := range []string{"a", "b", "c", "d", "e", "f"} {
		op := operation(event.Update, instance, "azure")
		s.request(op)
		testkit.Eventually(t, patience, "the request is accepted", func() bool { return s.state(op.ID) != "" })
		operations = append(operations, op)
	}
	for ended := range operations {
		testkit.Eventually(t, patience, "one more has ended, and two are in progress, or the rest", func() bool {
			var n struct{ Started, Left int }
			_ = s.db.Get(&n, `SELECT count(*) FILTER (WHERE state = 'in progress') AS started, count(*) AS "left"
				FROM orchestrator.operations WHERE state IN ('in progress', 'pending')`)
			if n.Started > 2 {
				t.Fatalf("%d operations are in progress, want at most 2", n.Started)
			}
			return n.Left == len(operations)-ended && n.Started == min(2, n.Left)
		})
		var page struct {
			Data []operator.Operation
		}
		s.get("/operations?state=pending", &page)
		for i := range page.Data { // newest first
			w := page.Data[i].Waiting
			if w.Reason != operator.Limited || w.Limit != "updates" || w.Position != len(page.Data)-i {
				t.Errorf("a pending operation waits for %+v, want position %d", w, len(page.Data)-i)
			}
		}
		open <- struct{}{}
	}
	close(open)
	for _, op := range operations {
		s.await(op, event.Succeeded)
	}
	var order []string
	require.NoError(t, s.db.Select(&order, `SELECT instance_id FROM orchestrator.operations ORDER BY started_at, arrived`))
	if diff := cmp.Diff([]string{"a", "b", "c", "d", "e", "f"}, order); diff != "" {
		t.Errorf("order of starts (-want +got):\n%s", diff)
	}
}

func TestDeprovision_Repeated_RunsOnlyRemainingSteps(t *testing.T) {
	s := newSystem(t)
	s.start()
	s.script.set("Remove_First", failing)
	first := operation(event.Deprovision, "i-1", "azure")
	s.request(first)
	s.await(first, event.Succeeded)
	var shown struct{ NotCompleted []string }
	s.get("/operations/"+first.ID, &shown)
	if diff := cmp.Diff([]string{"Remove_First"}, shown.NotCompleted); diff != "" {
		t.Errorf("not completed (-want +got):\n%s", diff)
	}
	s.script.set("Remove_First", done)
	again := operation(event.Deprovision, "i-1", "azure")
	s.request(again)
	s.await(again, event.Succeeded)
	if n := s.script.count("Remove_Second"); n != 1 {
		t.Errorf("Remove_Second ran %d times, want once over both operations", n)
	}
	if n := s.script.count("Remove_First"); n != 2 {
		t.Errorf("Remove_First ran %d times, want once in each operation", n)
	}
}
