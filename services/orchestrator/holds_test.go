package orchestrator_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/orchestrator"
)

// dispatches records when commands are published.
type dispatches struct {
	mu    sync.Mutex
	times []time.Time
}

func (d *dispatches) see(*nats.Msg) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.times = append(d.times, time.Now())
}

// after returns the number of commands after a time, and the time of the last one.
func (d *dispatches) after(at time.Time) (n int, last time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.times {
		if t.After(at) {
			n++
		}
		last = t
	}
	return n, last
}

// hold creates a hold through the operator API.
func (s *system) hold(scope operator.HoldScope, until *time.Time) (h operator.Hold) {
	s.t.Helper()
	s.must(http.StatusOK, http.MethodPost, "/holds", operator.HoldRequest{Scope: scope, Reason: "maintenance", Until: until, By: "jane"}, &h)
	return h
}

func (s *system) release(id string) {
	s.t.Helper()
	s.must(http.StatusNoContent, http.MethodDelete, "/holds/"+id, nil, nil)
}

func (s *system) holds() []operator.Hold {
	s.t.Helper()
	var list operator.List[operator.Hold]
	s.get("/holds", &list)
	return list.Data
}

// The operations poll without a pause, and a restarted orchestrator and new orders try to continue as well.
func TestHolds_TwoOrchestrators_SendNothingWithinASecond(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	poll := func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		return op, 10 * time.Millisecond, nil
	}
	s.script.set("Change", poll)
	var sent dispatches
	sub, err := s.bus.NATS().Subscribe("keb.command.>", sent.see)
	require.NoError(t, err)
	defer func() { _ = sub.Unsubscribe() }()
	s.start()
	second := s.orchestrator()
	ops := make([]event.Operation, 40)
	for i := range ops {
		ops[i] = operation(event.Update, fmt.Sprintf("i-%d", i), "azure")
	}
	s.request(ops...)
	testkit.Eventually(t, patience, "the operations poll", func() bool { return s.script.count("Change") > 200 })

	h := s.hold(operator.HoldScope{GlobalAccount: "ga"}, nil)
	accepted := time.Now()
	testkit.Eventually(t, patience, "all operations are held", func() bool { return s.holds()[0].Operations == len(ops) })
	require.NoError(t, s.bus.NATS().Flush())
	testkit.Eventually(t, patience, "the commands so far are recorded", func() bool {
		n, err := sub.Delivered()
		recorded, _ := sent.after(time.Time{})
		return err == nil && int64(recorded) == n
	})
	held := time.Now()
	second.stop()
	s.orchestrator()
	late := operation(event.Provision, "i-late", "azure")
	s.request(late)
	testkit.Eventually(t, patience, "the new operation is held", func() bool { return s.holds()[0].Operations == len(ops)+1 })
	require.NoError(t, s.bus.NATS().Flush())
	n, last := sent.after(held)
	if n > 0 || last.Sub(accepted) > time.Second {
		t.Errorf("%d commands were sent although all operations were held, the last %s after the hold", n, last.Sub(accepted))
	}
	t.Logf("the last command was sent %s after the hold was accepted", last.Sub(accepted).Round(time.Millisecond))

	var detail operator.OperationDetail
	s.get("/operations/"+ops[0].ID, &detail)
	if w := detail.Waiting; w == nil || w.Reason != operator.Held || w.Hold != h.ID || w.Step != "Change" || !strings.Contains(detail.WaitingFor, h.ID) {
		t.Errorf("waiting %+v, want held by %s at step Change", w, h.ID)
	}
	var list operator.OperationList
	s.get("/operations?waiting=held", &list)
	if list.TotalCount != len(ops)+1 {
		t.Errorf("%d operations are listed as held, want %d", list.TotalCount, len(ops)+1)
	}
	var stuck operator.List[*operator.Stuck]
	testkit.Eventually(t, patience, "the held operations are listed as stuck", func() bool {
		s.get("/stuck?waiting=held", &stuck)
		total := 0
		for _, g := range stuck.Data {
			total += g.Count
		}
		return total == len(ops)+1
	})

	s.script.set("Change", done)
	s.release(h.ID)
	released := time.Now()
	for _, op := range append(ops, late) {
		s.await(op, event.Succeeded)
	}
	t.Logf("%d operations ended %s after the release", len(ops)+1, time.Since(released).Round(time.Millisecond))
	if holds := s.holds(); len(holds) > 0 {
		t.Errorf("holds %+v, want none", holds)
	}
}

// An operator can skip a step while an orchestrator still prepares the bus.
func TestHolds_ActionBeforeRun_HoldsTheNextStep(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	first := s.orchestrator()
	op := operation(event.Provision, "i-1", "azure")
	s.request(op)
	s.await(op, event.InProgress)
	s.hold(operator.HoldScope{Worker: "beta"}, nil)
	first.stop()
	var sent dispatches
	sub, err := s.bus.NATS().Subscribe("keb.command.beta.>", sent.see)
	require.NoError(t, err)
	defer func() { _ = sub.Unsubscribe() }()
	deps := orchestrator.Deps{Bus: s.bus, Memory: stagemem.New(s.bus.JetStream(), s.keys), Log: s.log}
	second, err := orchestrator.New(t.Context(), s.cfg, deps)
	require.NoError(t, err)
	defer func() { _ = second.Close() }()
	s.api = httptest.NewServer(checked(t, second.Handler()))
	defer s.api.Close()
	s.must(http.StatusNoContent, http.MethodPost, "/operations/"+op.ID+"/skip", map[string]string{"step": "First", "by": "jane"}, nil)
	var held bool
	require.NoError(t, s.db.Get(&held, `SELECT hold_id IS NOT NULL FROM orchestrator.operations WHERE id = $1`, op.ID))
	require.NoError(t, s.bus.NATS().Flush())
	if n, _ := sent.after(time.Time{}); !held || n != 0 {
		t.Errorf("held: %t, %d commands sent; want it held and none sent", held, n)
	}
}

func TestHolds_End_ReleasesTheOperations(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.start()
	until := time.Now().Add(2 * time.Second)
	h := s.hold(operator.HoldScope{Worker: "beta", Type: event.Provision}, &until)
	if h.CreatedBy != "jane" || h.Reason != "maintenance" || h.Until == nil {
		t.Errorf("hold %+v, want one of jane with an end", h)
	}
	op := operation(event.Provision, "i-1", "azure")
	s.request(op)
	testkit.Eventually(t, patience, "the operation is held", func() bool {
		var detail operator.OperationDetail
		if s.state(op.ID) != event.InProgress {
			return false
		}
		s.get("/operations/"+op.ID, &detail)
		return detail.Waiting != nil && detail.Waiting.Reason == operator.Held && detail.Waiting.Step == "Second"
	})
	if s.script.countOf(op.ID, "First") != 1 {
		t.Error("the step before the held one has not run once")
	}
	s.await(op, event.Succeeded)
	if at := time.Now(); at.Before(until) {
		t.Errorf("the operation has ended %s before the end of the hold", until.Sub(at))
	}
}

func TestHolds_Restart_Remembers(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	o := s.start()
	h := s.hold(operator.HoldScope{Plan: "azure"}, nil)
	o.stop()
	s.orchestrator()
	held, free := operation(event.Update, "i-1", "azure"), operation(event.Update, "i-2", "aws")
	s.request(held, free)
	s.await(free, event.Succeeded)
	testkit.Eventually(t, patience, "the operation is held", func() bool { return s.holds()[0].Operations == 1 })
	if state := s.state(held.ID); state != event.Pending {
		t.Errorf("the held operation is %s, want pending", state)
	}
	s.release(h.ID)
	s.await(held, event.Succeeded)
}

func TestHolds_RejectOrders_BrokerIsAnsweredInPages(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.start()
	s.hold(operator.HoldScope{Plan: "aws"}, nil)
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	var first, second operator.Hold
	s.must(http.StatusOK, http.MethodPost, "/holds", operator.HoldRequest{
		Scope: operator.HoldScope{GlobalAccount: "ga", Region: "westeurope", Type: event.Provision}, Reason: "abuse", Orders: operator.OrdersReject,
		Until: &until,
	}, &first)
	if first.Orders != operator.OrdersReject || s.holds()[0].Orders != operator.OrdersWait {
		t.Errorf("orders %q, want reject; the other hold has %q, want wait", first.Orders, s.holds()[0].Orders)
	}
	s.must(http.StatusOK, http.MethodPost, "/holds", operator.HoldRequest{
		Scope: operator.HoldScope{Plan: "azure", Instance: "i-1"}, Reason: "outage", Orders: operator.OrdersReject,
	}, &second)
	want := []event.Rejection{
		{HoldID: first.ID, Type: event.Provision, GlobalAccountID: "ga", Region: "westeurope", Reason: "abuse", Until: &until},
		{HoldID: second.ID, Plan: "azure", InstanceID: "i-1", Reason: "outage"},
	}
	for after, want := range map[string][]event.Rejection{"": want, first.ID: want[1:], second.ID: {}} {
		var answer event.RejectionsAnswer
		testkit.Eventually(t, patience, "the orchestrator answers", func() bool { // it starts to answer after its API
			return s.bus.Ask(t.Context(), event.AskRejections, event.RejectionsRequest{After: after}, &answer) == nil
		})
		if diff := cmp.Diff(event.RejectionsAnswer{Rejections: want}, answer); diff != "" {
			t.Errorf("rejections after %q (-want +got):\n%s", after, diff)
		}
	}
	for _, bad := range []operator.HoldRequest{
		{Scope: operator.HoldScope{Plan: "azure"}, Reason: "x", Orders: "drop"},
		{Scope: operator.HoldScope{Plan: "azure", Worker: "avs"}, Reason: "x", Orders: operator.OrdersReject},
	} {
		s.must(http.StatusBadRequest, http.MethodPost, "/holds", bad, nil)
	}
}
