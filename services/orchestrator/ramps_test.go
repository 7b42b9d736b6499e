package orchestrator_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/orchestrator/internal/ramp"
)

// executions records which versions of the worker alpha have executed the step of an operation.
type executions struct {
	mu       sync.Mutex
	versions map[string][]string
	// running is the number of executions at this moment by operation, and parallel lists the operations with more than one.
	running  map[string]int
	parallel []string
	// hung is the operation whose step never ends.
	hung string
}

func (e *executions) of(id string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.versions[id])
}

// alpha starts a replica of the worker alpha with the step First.
func (s *system) alpha(version string, ramped bool, e *executions) running {
	s.t.Helper()
	b := testkit.Connect(s.t, s.nats.URL())
	script := &script{steps: map[string]behaviour{}, every: map[string]int{}}
	script.set("First", func(ctx context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		e.mu.Lock()
		e.versions[op.ID] = append(e.versions[op.ID], version)
		e.running[op.ID]++
		if e.running[op.ID] > 1 {
			e.parallel = append(e.parallel, op.ID)
		}
		hangs := e.hung == op.ID && ramped
		e.mu.Unlock()
		defer func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.running[op.ID]--
		}()
		if hangs {
			<-ctx.Done()
			return op, 0, ctx.Err()
		}
		return op, 0, nil
	})
	w, err := worker.New(worker.Config{Name: "alpha", Version: version, Ramped: ramped, DrainTimeout: 10 * time.Millisecond},
		worker.Deps{Bus: b, Log: s.log}, scripted{name: "First", script: script})
	require.NoError(s.t, err)
	return start(s.t, "worker alpha "+version, w.Run)
}

func (s *system) ramp(method, body string) (status int, answer string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.api.URL+"/workers/alpha/ramps", strings.NewReader(body))
	require.NoError(s.t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	defer response.Body.Close()
	var text bytes.Buffer
	_, _ = text.ReadFrom(response.Body)
	return response.StatusCode, text.String()
}

func (s *system) mustRamp(method, body string, want int) {
	s.t.Helper()
	if got, answer := s.ramp(method, body); got != want {
		s.t.Fatalf("%s %s: %d %s, want %d", method, body, got, answer, want)
	}
}

// ramped returns the number of live ramped replicas of alpha, and the number of its ramps.
func (s *system) ramped() (replicas, ramps int) {
	var workers operator.List[operator.Worker]
	s.get("/workers", &workers)
	for _, w := range workers.Data {
		if w.Name == "alpha" {
			for _, v := range w.VersionReplicas {
				replicas += v.Ramped
			}
			ramps = len(w.Ramps)
		}
	}
	return replicas, ramps
}

// rampedCommands returns the number of commands on the bus for the ramped replicas.
func (s *system) rampedCommands() uint64 {
	s.t.Helper()
	stream, err := s.bus.JetStream().Stream(s.t.Context(), string(event.StreamCommands))
	require.NoError(s.t, err)
	c, err := stream.Consumer(s.t.Context(), event.Ramped("alpha"))
	require.NoError(s.t, err)
	return c.CachedInfo().NumPending + uint64(c.CachedInfo().NumAckPending)
}

const rampProcess = `
operation: provision
stages:
  - name: create
    steps:
      - {name: First, worker: alpha, execution: 10m, retry: {every: 50ms, timeout: 1h}}
`

// newRampSystem starts two orchestrators and a replica of each kind. The execution limit is long, so that no command is sent again at its limit.
func newRampSystem(t *testing.T) (s *system, e *executions, ramped running) {
	t.Helper()
	s, e = newSystem(t), &executions{versions: map[string][]string{}, running: map[string]int{}}
	s.cfg.Processes = fstest.MapFS{"provision.yaml": {Data: []byte(rampProcess)}}
	s.cfg.AskWorkersEvery = time.Second
	s.orchestrator()
	s.orchestrator() // it learns of the ramps by a notice
	s.alpha("1.0.0", false, e)
	s.mustRamp(http.MethodPost, `{"version":"2.0.0","percent":10,"scope":{},"reason":"test"}`, http.StatusConflict) // no ramped replica lives
	ramped = s.alpha("2.0.0", true, e)
	testkit.Eventually(t, patience, "the ramped replica is known", func() bool { n, _ := s.ramped(); return n == 1 })
	return s, e, ramped
}

// settle waits until a new ramp applies to operations that start.
func settle() { <-time.After(ramp.Settle + 200*time.Millisecond) }

// isRamped reports whether an operation belongs to a share.
func isRamped(op *event.Operation, percent int) bool {
	return ramp.Version([]ramp.Ramp{{Worker: "alpha", Version: "2.0.0", Percent: percent}}, op, "alpha", time.Now()) != ""
}

// outside returns an operation that does not belong to a share of 10 %, and inside one that does.
func outside(instance string) event.Operation {
	op := operation(event.Provision, instance, "azure")
	for isRamped(&op, 10) {
		op = operation(event.Provision, instance, "azure")
	}
	return op
}

func inside(instance string) event.Operation {
	op := operation(event.Provision, instance, "azure")
	for !isRamped(&op, 10) {
		op = operation(event.Provision, instance, "azure")
	}
	return op
}

func (e *executions) want(t *testing.T, op *event.Operation, versions ...string) {
	t.Helper()
	if got := e.of(op.ID); !slices.Equal(got, versions) {
		t.Errorf("operation %s was executed by the versions %v, want %v", op.ID, got, versions)
	}
}

func TestRamp_Percentage_GetsItsShare(t *testing.T) {
	s, e, _ := newRampSystem(t)
	s.mustRamp(http.MethodPost, `{"version":"2.0.0","percent":10,"scope":{},"reason":"test"}`, http.StatusOK)
	s.mustRamp(http.MethodPost, `{"version":"3.0.0","percent":10,"scope":{},"reason":"test"}`, http.StatusConflict)
	settle()
	const all = 400
	operations := make([]event.Operation, all)
	for i := range operations {
		operations[i] = operation(event.Provision, fmt.Sprintf("i-%d", i), "azure")
	}
	s.request(operations...)
	share := 0
	for i := range operations {
		op := &operations[i]
		s.await(*op, event.Succeeded)
		want := "1.0.0"
		if isRamped(op, 10) {
			want = "2.0.0"
			share++
		}
		e.want(t, op, want)
	}
	t.Logf("%d of %d operations were ramped", share, all)
	if share < all*5/100 || share > all*15/100 {
		t.Errorf("%d of %d operations were ramped, want about 10 %%", share, all)
	}
	pinned := outside("pinned")
	s.mustRamp(http.MethodPost, `{"version":"2.0.0","percent":100,"scope":{"operation":"`+pinned.ID+`"},"reason":"test"}`, http.StatusOK)
	settle() // the other orchestrator has read it too
	s.request(pinned)
	s.await(pinned, event.Succeeded)
	e.want(t, &pinned, "2.0.0")
}

func TestRamp_Removed_ReturnsCommands(t *testing.T) {
	s, e, ramped := newRampSystem(t)
	s.mustRamp(http.MethodPost, `{"version":"2.0.0","percent":10,"scope":{},"reason":"test"}`, http.StatusOK)
	settle()
	ramped.stop()
	testkit.Eventually(t, patience, "the ramped replica is gone", func() bool { n, _ := s.ramped(); return n == 0 })
	lost, other := inside("lost"), outside("other")
	s.request(lost, other)
	s.await(other, event.Succeeded)
	testkit.Eventually(t, patience, "the missing version is shown", func() bool {
		var shown operator.OperationDetail
		s.get("/operations/"+lost.ID, &shown)
		return shown.Waiting != nil && shown.Waiting.Reason == operator.NoWorker && shown.Waiting.Version == "2.0.0" &&
			strings.Contains(shown.WaitingFor, "alpha of version 2.0.0")
	})
	var stuck operator.List[*operator.Stuck]
	s.get("/stuck", &stuck)
	if len(stuck.Data) != 1 || stuck.Data[0].Reason != operator.NoWorker || stuck.Data[0].Version != "2.0.0" || stuck.Data[0].Count != 1 {
		t.Errorf("stuck operations are %+v, want one without a worker of version 2.0.0", stuck.Data)
	}
	s.orchestrator() // one that starts now knows the ramp
	if n := s.rampedCommands(); n != 1 {
		t.Errorf("%d commands wait for ramped replicas, want 1", n)
	}
	off := time.Now()
	s.mustRamp(http.MethodDelete, "", http.StatusNoContent)
	s.await(lost, event.Succeeded)
	t.Logf("the operation ended %s after the ramp was removed", time.Since(off).Round(time.Millisecond))
	e.want(t, &lost, "1.0.0")
	// A replica that returns finds no old command.
	if n := s.rampedCommands(); n != 0 {
		t.Errorf("%d commands are left for ramped replicas", n)
	}
	// The removal is complete: another version is allowed.
	s.alpha("3.0.0", true, e)
	testkit.Eventually(t, patience, "a ramp to another version is accepted", func() bool {
		status, _ := s.ramp(http.MethodPost, `{"version":"3.0.0","percent":10,"scope":{},"reason":"test"}`)
		return status == http.StatusOK
	})
	e.want(t, &lost, "1.0.0")
}

func TestRamp_RemovedWhileExecuted_IsNotExecutedTwice(t *testing.T) {
	s, e, ramped := newRampSystem(t)
	s.mustRamp(http.MethodPost, `{"version":"2.0.0","percent":10,"scope":{},"reason":"test"}`, http.StatusOK)
	settle()
	hung := inside("hung")
	e.hung = hung.ID
	s.request(hung)
	testkit.Eventually(t, patience, "the ramped replica executes it", func() bool { return len(e.of(hung.ID)) == 1 })
	s.mustRamp(http.MethodDelete, "", http.StatusNoContent)
	testkit.Eventually(t, patience, "the ramp is gone", func() bool { _, n := s.ramped(); return n == 0 })
	settle() // the other orchestrator has read the removal too
	next := inside("next")
	s.request(next)
	s.await(next, event.Succeeded)
	e.want(t, &next, "1.0.0")
	settle() // several rounds of the removal
	e.want(t, &hung, "2.0.0")
	s.mustRamp(http.MethodPost, `{"version":"2.0.0","percent":10,"scope":{},"reason":"test"}`, http.StatusConflict) // the removal is not complete
	ramped.stop()
	s.await(hung, event.Succeeded)
	e.want(t, &hung, "2.0.0", "1.0.0")
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.parallel) > 0 {
		t.Errorf("operations %v were executed twice at the same time", e.parallel)
	}
}
