package orchestrator_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

// found returns the IDs in a list of operations.
func (s *system) found(query string) []string {
	s.t.Helper()
	var list struct{ Data []struct{ ID string } }
	s.get("/operations?"+query, &list)
	ids := []string{}
	for _, op := range list.Data {
		ids = append(ids, op.ID)
	}
	return ids
}

// waits is what an operation waits for.
type waits struct {
	Reason, Worker, Step, Operation string
	Since                           time.Time
	Until                           *time.Time
}

func (s *system) waiting(id string) *waits {
	s.t.Helper()
	var shown struct{ Waiting *waits }
	s.get("/operations/"+id, &shown)
	return shown.Waiting
}

func TestOperations_FilterByWait_FindsMatches(t *testing.T) {
	s := newSystem(t)
	s.cfg.AskWorkersEvery = 2 * time.Second // a short pause of the process must not make its worker appear missing
	s.worker("alpha")
	testkit.Eventually(t, patience, "the worker answers", func() bool {
		_, err := s.bus.NATS().Request("$SRV.PING", nil, time.Second)
		return err == nil
	})
	s.orchestrator()
	s.script.set("First", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		switch op.InstanceID {
		case "i-polls":
			return worker.Wait(op, time.Hour, "creating")
		case "i-fails":
			return worker.Retry(op, time.Hour, errors.New("the system is closed"))
		}
		return op, 0, nil
	})
	hold := make(chan struct{})
	defer close(hold)
	s.script.set("Change", gate(hold).step)
	polls, fails := operation(event.Provision, "i-polls", "azure"), operation(event.Provision, "i-fails", "azure")
	stranded := operation(event.Provision, "i-stranded", "aws")
	busy, executing := operation(event.Update, "i-polls", "azure"), operation(event.Update, "i-update", "azure")
	s.request(polls, fails, stranded, executing)
	for id, reason := range map[string]string{polls.ID: "polling", fails.ID: "failing", stranded.ID: "no_worker", executing.ID: "executing"} {
		testkit.Eventually(t, patience, "an operation waits for "+reason, func() bool {
			if s.state(id) != event.InProgress {
				return false
			}
			w := s.waiting(id)
			return w != nil && w.Reason == reason
		})
	}
	s.request(busy)
	s.await(busy, event.Pending)

	if w := s.waiting(polls.ID); w.Worker != "alpha" || w.Step != "First" || w.Until == nil || w.Since.IsZero() {
		t.Errorf("the polling one: %+v", w)
	}
	if w := s.waiting(stranded.ID); w.Worker != "beta" || w.Step != "Second" || w.Since.IsZero() || time.Since(w.Since) > time.Hour {
		t.Errorf("the one without a worker: %+v", w)
	}
	if w := s.waiting(busy.ID); w.Reason != "instance_busy" || w.Operation != polls.ID {
		t.Errorf("the one whose instance is busy: %+v", w)
	}
	for query, want := range map[string][]string{
		"waiting=polling": {polls.ID}, "waiting=failing": {fails.ID}, "waiting=no_worker": {stranded.ID}, "waiting=executing": {executing.ID},
		"waiting=instance_busy": {busy.ID}, "waiting=admission": {}, "waiting=no_answer": {}, "waiting=failing,no_worker": {fails.ID, stranded.ID},
		"step=Second": {stranded.ID}, "worker=alpha": {polls.ID, fails.ID, executing.ID}, "worker=alpha&waiting=failing": {fails.ID}, "worker=gamma": {},
		"q=" + busy.ID: {busy.ID}, "q=i-str": {stranded.ID}, "q=c-1234567&state=pending": {busy.ID},
		"plan=aws": {stranded.ID}, "type=update&state=in+progress": {executing.ID},
	} {
		got := s.found(query)
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}

	var overview struct {
		Operations []struct {
			Type, State string
			Count       int
		}
		Waiting  map[string]int
		Oldest   []struct{ Type, Operation string }
		LastHour map[string]int
	}
	testkit.Eventually(t, patience, "the overview is complete", func() bool {
		s.get("/overview", &overview)
		return overview.Waiting["instance_busy"] == 1
	})
	counts := map[string]int{
		"executing": 1, "polling": 1, "failing": 1, "no_answer": 0, "no_worker": 1, "held": 0, "limited": 0, "event": 0, "slow": 0,
		"instance_busy": 1, "admission": 0,
	}
	if diff := cmp.Diff(counts, overview.Waiting); diff != "" {
		t.Errorf("waiting (-want +got):\n%s", diff)
	}
	if len(overview.Oldest) != 2 || overview.LastHour["started"] != 4 || len(overview.Operations) != 3 {
		t.Errorf("overview: %+v", overview)
	}

	var stuck struct {
		Data []struct {
			Reason, Type, Worker, Step, Stage string
			Count                             int
			Operations, BlockedBy             []string
			Error                             struct{ Message string }
			Since                             time.Time
		}
	}
	s.get("/stuck", &stuck)
	seen := map[string]string{}
	for _, g := range stuck.Data {
		seen[g.Reason] = fmt.Sprintf("%d %s/%s/%s %v %v %s", g.Count, g.Worker, g.Stage, g.Step, g.Operations, g.BlockedBy, g.Error.Message)
	}
	want := map[string]string{ // without the operation that polls
		"failing":       fmt.Sprintf("1 alpha/create/First [%s] [] the system is closed", fails.ID),
		"no_worker":     fmt.Sprintf("1 beta/create/Second [%s] [] ", stranded.ID),
		"instance_busy": fmt.Sprintf("1 // [%s] [%s] ", busy.ID, polls.ID),
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("stuck (-want +got):\n%s", diff)
	}

	// The missing worker has a waiting command; the other worker has executed steps.
	var workers struct {
		Data []struct {
			Name                                   string
			Alive                                  bool
			LastSeen                               *time.Time
			Pending                                *int
			StepsPerMinute                         float64
			OperationsWaiting, OperationsExecuting int
			MissingSteps                           []string
		}
	}
	s.get("/workers", &workers)
	alpha, beta := workers.Data[0], workers.Data[1]
	if !alpha.Alive || alpha.LastSeen == nil || alpha.OperationsWaiting != 2 || alpha.OperationsExecuting != 1 || len(alpha.MissingSteps) != 0 || alpha.StepsPerMinute <= 0 {
		t.Errorf("alpha: %+v", alpha)
	}
	if beta.Alive || beta.LastSeen != nil || beta.OperationsWaiting != 1 || beta.Pending == nil || *beta.Pending != 1 || len(beta.MissingSteps) == 0 {
		t.Errorf("beta: %+v", beta)
	}

	var throughput struct {
		BucketSeconds int
		Data          []struct {
			Operations struct{ Started int }
			Types      map[event.OperationType]struct{ Started int }
			Steps      struct{ Succeeded, Polled, Retry int }
		}
	}
	s.get("/throughput?minutes=10&bucket=5m", &throughput)
	started, succeeded, polled, retried := 0, 0, 0, 0
	for _, b := range throughput.Data {
		ofTypes := 0
		for _, c := range b.Types {
			ofTypes += c.Started
		}
		if ofTypes != b.Operations.Started {
			t.Errorf("%d operations have started, %d by type", b.Operations.Started, ofTypes)
		}
		started, succeeded = started+b.Operations.Started, succeeded+b.Steps.Succeeded
		polled, retried = polled+b.Steps.Polled, retried+b.Steps.Retry
	}
	// Starting ran three times, First once; one operation polls First, and one tries it again after an error.
	if throughput.BucketSeconds != 300 || started != 4 || succeeded != 4 || polled != 1 || retried != 1 {
		t.Errorf("throughput: %d started, %d steps succeeded, %d polled, %d retried: %+v", started, succeeded, polled, retried, throughput)
	}

	// What a hold keeps waiting does not wait for its worker.
	s.post("/holds", `{"scope":{"worker":"alpha","plan":"gcp"},"reason":"alpha is being migrated"}`)
	s.request(operation(event.Provision, "i-held", "gcp"))
	testkit.Eventually(t, patience, "an operation is held", func() bool {
		s.get("/overview", &overview)
		return overview.Waiting["held"] == 1
	})
	s.get("/workers", &workers)
	if n := workers.Data[0].OperationsWaiting; n != 2 {
		t.Errorf("%d operations wait for alpha, want the one that polls and the one that fails", n)
	}
}

// told is a received stream event.
type told struct{ id, event, data string }

// listen opens the stream and returns its events until stop is called.
func (s *system) listen(query, last string) (events <-chan told, stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.api.URL+"/stream"+query, nil)
	require.NoError(s.t, err)
	if last != "" {
		request.Header.Set("Last-Event-ID", last)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		s.t.Fatalf("GET /stream%s: %s", query, response.Status)
	}
	out := make(chan told, 1000)
	go func() {
		defer close(out)
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<20)
		var e told
		for lines.Scan() {
			switch key, value, _ := strings.Cut(lines.Text(), ": "); key {
			case "id":
				e.id = value
			case "event":
				e.event = value
			case "data":
				e.data = value
			case "":
				if e != (told{}) && lines.Text() == "" {
					out <- e
					e = told{}
				}
			}
		}
	}()
	stop = func() {
		cancel()
		_ = response.Body.Close()
		for range out { // until the reader has ended
		}
	}
	s.t.Cleanup(stop)
	return out, stop
}

// until waits for an event.
func (s *system) until(events <-chan told, what string, ok func(e told) bool) {
	s.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case e, open := <-events:
			if !open {
				s.t.Fatalf("the stream ended before %s", what)
			}
			if ok(e) {
				return
			}
		case <-timer.C:
			s.t.Fatalf("%s did not arrive", what)
		}
	}
}

func TestStream_Changes_AreSent(t *testing.T) {
	s := newSystem(t)
	s.orchestrator()
	s.orchestrator() // the API belongs to the first orchestrator; both make changes
	events, stop := s.listen("", "")
	last := ""
	s.until(events, "a marker to resume from", func(e told) bool { last = e.id; return last != "" })
	alpha := s.worker("alpha")
	s.until(events, "the worker", func(e told) bool {
		return e.event == "workers" && strings.Contains(e.data, `"name":"alpha","replicas":1,"alive":true`)
	})
	ended := func(id string) func(e told) bool {
		return func(e told) bool {
			var op struct{ ID, State string }
			return e.event == "operation" && json.Unmarshal([]byte(e.data), &op) == nil && op.ID == id && op.State == "succeeded"
		}
	}
	var ops []event.Operation
	for i := range 20 {
		ops = append(ops, operation(event.Update, fmt.Sprintf("i-%d", i), "azure"))
	}
	s.request(ops...)
	left := map[string]bool{}
	for _, op := range ops {
		left[op.ID] = true
	}
	s.until(events, "the end of every operation", func(e told) bool {
		for id := range left {
			if ended(id)(e) {
				delete(left, id)
			}
		}
		return len(left) == 0
	})
	stop()

	missed := operation(event.Update, "i-missed", "azure")
	s.run(missed)
	again, _ := s.listen("", last)
	s.until(again, "what was missed", ended(missed.ID))

	// A stream of one operation includes its history.
	alpha.stop()
	one := operation(event.Update, "i-one", "azure")
	s.request(one)
	testkit.Eventually(t, patience, "the operation is there", func() bool { return s.state(one.ID) == event.InProgress })
	single, _ := s.listen("?operation="+one.ID, "")
	s.worker("alpha")
	lines := ""
	s.until(single, "the line of its step", func(e told) bool {
		if e.event == "operation" && !strings.Contains(e.data, one.ID) {
			t.Errorf("an event of another operation: %s", e.data)
		}
		if e.event == "history" {
			lines += e.data
		}
		return strings.Contains(lines, `"step":"Change","worker":"alpha"`) && strings.Contains(lines, `"outcome":"operation succeeded"`)
	})
}
