package orchestrator_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

// send sends an event through the operator API.
func (s *system) send(key, id, data string) (answer operator.EventAnswer, status int) {
	s.t.Helper()
	status, text := s.do(http.MethodPost, "/events/"+key, data, "Ce-Id", id)
	require.NoError(s.t, json.Unmarshal([]byte(text), &answer))
	return answer, status
}

// approval is a step that waits for an event, and collects the data of events until one of them has ended it.
func (s *system) approval(fallback time.Duration) <-chan string {
	seen := make(chan string, 1000)
	s.script.set("Change", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		if op.Event != nil {
			seen <- op.Event.Source + " " + op.Event.ID + " " + string(op.Event.Data)
			if string(op.Event.Data) == `"done"` {
				return op, 0, nil
			}
		}
		return worker.WaitForEvent(op, "approval."+op.ID, fallback, "")
	})
	return seen
}

func (s *system) waitsFor(id string) *operator.Waiting {
	s.t.Helper()
	var d operator.OperationDetail
	s.get("/operations/"+id, &d)
	return d.Waiting
}

func TestEvents_OverHTTP_ContinueTheStep(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	seen := s.approval(time.Hour)
	s.start()
	op := operation(event.Update, "i-1", "azure")
	s.request(op)
	testkit.Eventually(t, patience, "the operation starts", func() bool { return s.state(op.ID) == event.InProgress })
	testkit.Eventually(t, patience, "the step waits", func() bool {
		w := s.waitsFor(op.ID)
		return w != nil && w.Reason == operator.AwaitsEvent && w.Event == "approval."+op.ID && w.Until != nil
	})
	var list operator.OperationList
	s.get("/operations?waiting=event", &list)
	if len(list.Data) != 1 || !strings.Contains(list.Data[0].WaitingFor, "approval."+op.ID) {
		t.Errorf("operations that wait for an event: %+v", list.Data)
	}
	for i, want := range []bool{false, true} {
		answer, status := s.send("approval."+op.ID, "42", `{"by": "ann"}`)
		if answer.Repeated != want || status != http.StatusAccepted || answer.ID != "42" {
			t.Errorf("event %d: status %d, answer %+v", i, status, answer)
		}
	}
	_, status := s.send("approval."+op.ID, "", `"done"`)
	require.Equal(t, http.StatusAccepted, status)
	s.await(op, event.Succeeded)
	first, second := <-seen, <-seen
	if first != `/keb/client/an%20operator 42 {"by":"ann"}` || !strings.HasSuffix(second, `"done"`) || len(seen) > 0 {
		t.Errorf("the step saw %q, %q and %d more", first, second, len(seen))
	}
	var d operator.OperationDetail
	s.get("/operations/"+op.ID, &d)
	var received []string
	for _, l := range d.History {
		if l.Outcome == "event received" {
			received = append(received, l.Step+": "+l.Message)
		}
	}
	if len(received) != 2 || received[0] != "Change: event approval."+op.ID+", id 42, of /keb/client/an%20operator" {
		t.Errorf("events in the history: %q", received)
	}
}

func TestEvents_EarlyOverTheBus_AreKept(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	seen := s.approval(time.Hour)
	s.start()
	op := operation(event.Update, "i-1", "azure")
	for _, id := range []string{"1", "2"} {
		e, err := bus.New("com.example.approved", id, "/approvals", "", time.Now(), map[string]string{"1": "no", "2": "done"}[id])
		require.NoError(t, err)
		require.NoError(t, s.bus.Publish(t.Context(), bus.Message{Subject: event.SignalSubject("approval." + op.ID), Event: e}))
	}
	s.request(op)
	s.await(op, event.Succeeded)
	if diff := cmp.Diff([]string{`/approvals 1 "no"`, `/approvals 2 "done"`}, []string{<-seen, <-seen}); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// One of two orchestrators is killed while each operation gets events, polls and answers.
func TestEvents_TwoOrchestrators_LoseNone(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	seen := s.approval(20 * time.Millisecond)
	s.start()
	second := s.orchestrator()
	ops := make([]event.Operation, 20)
	for i := range ops {
		ops[i] = operation(event.Update, "i-"+uuid.NewString(), "azure")
	}
	s.request(ops...)
	sent := map[string]bool{}
	for n := range 5 {
		if n == 3 {
			second.stop()
		}
		for _, op := range ops {
			data := `"more"`
			if n == 4 {
				data = `"done"`
			}
			answer, status := s.send("approval."+op.ID, "", data)
			require.Equal(t, http.StatusAccepted, status)
			sent["/keb/client/an%20operator "+answer.ID+" "+data] = true
		}
	}
	for _, op := range ops {
		s.await(op, event.Succeeded)
	}
	for range len(sent) {
		one := <-seen
		if !sent[one] {
			t.Errorf("%s came twice, or was never sent", one)
		}
		delete(sent, one)
	}
}
