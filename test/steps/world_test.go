// Package steps_test tests the steps of all workers. A world runs operations through the engine, the process definitions, all steps and the
// simulated landscape in one goroutine, without a bus and a database. Its clock jumps to the next due time, so a provisioning takes milliseconds.
// Tests can make each call and each result fail.
package steps_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/landscape"
	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/orchestrator/rehearsal"
	stepworkers "github.com/kyma-project/keb/services/step-workers"
)

const (
	// takes is the duration of the creation of a cluster, and of a reconciliation.
	takes = 4 * time.Minute
	// poll is the polling interval of the steps.
	poll = time.Minute
	// rounds limits the executions of an operation that does not end.
	rounds = 20_000
)

// Execution is one execution of a step as seen from outside.
type Execution struct {
	Worker  string
	Command event.StepExecute
	Calls   []worker.Call
	// Details are the names of the saved members, StageMemory those of the values in the stage memory.
	Details     []string
	StageMemory []string
	// Lost reports that the result did not arrive.
	Lost bool
}

// Hook returns the fault of the external systems during an execution, or nil. lose drops the result, as if the process had been killed
// after the step.
type Hook func(worker string, c event.StepExecute) (f *Fault, lose bool)

// World is the landscape, all workers and a clock.
type World struct {
	t     testing.TB
	url   string
	door  *door
	steps map[string]map[string]worker.Step
	clock *testkit.Clock
	// environment holds the variables of the workers.
	environment map[string]string
	// questions are the questions that workers answer, by subject.
	questions map[string]func(context.Context, []byte) (any, error)
	// kept contains the values that the broker keeps, by instance and worker.
	kept map[string]json.RawMessage
}

// NewWorld starts a landscape of its own.
func NewWorld(t testing.TB) *World {
	t.Helper()
	return newWorld(t, takes)
}

// newWorld starts a landscape with this duration of installations, and half of it for removals.
func newWorld(t testing.TB, reconcile time.Duration) *World {
	t.Helper()
	w := &World{
		t: t, clock: testkit.NewClock(time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)),
		steps: map[string]map[string]worker.Step{}, kept: map[string]json.RawMessage{},
		questions:   map[string]func(context.Context, []byte) (any, error){},
		environment: map[string]string{"KEB_AVS_TAGS_ENABLED": "true"},
	}
	l, err := landscape.New(landscape.Config{ClusterTime: takes, ReconcileTime: reconcile, Bindings: 3, DirectorLookUp: true}, landscape.Deps{Now: w.Now})
	require.NoError(t, err)
	w.door = &door{next: l.Handler()}
	server := httptest.NewServer(w.door)
	t.Cleanup(func() {
		if broken := l.Violations(); len(broken) > 0 {
			t.Errorf("requests broke the contract of their system:\n%s", strings.Join(broken, "\n"))
		}
		server.CloseClientConnections()
		server.Close()
		_ = l.Close()
	})
	w.url = server.URL
	w.Restart()
	return w
}

// UseDirector lets the workers find runtimes in the Director. Kyma 1 needs it: the Runtime Provisioner of 2020 names Shoots itself, so
// nothing else finds the runtime of an order whose answer was lost.
func (w *World) UseDirector() {
	w.t.Helper()
	w.environment["KEB_DIRECTOR_URL"], w.environment["KEB_DIRECTOR_TOKEN_URL"] = w.url+"/director/graphql", w.url+"/director/oauth2/token"
	w.Restart()
}

// Restart replaces all workers. The old ones may have paused their calls to a system by the real clock.
func (w *World) Restart() {
	w.t.Helper()
	services, err := stepworkers.All(w.url, stepworkers.Options{
		Environment: w.environment, Poll: poll, Now: w.Now,
	})
	require.NoError(w.t, err)
	for _, s := range services {
		for _, q := range s.Questions {
			w.questions[q.Subject] = q.Answer
		}
		w.steps[s.Name] = map[string]worker.Step{}
		for _, step := range s.Steps {
			w.steps[s.Name][step.Name()] = step
		}
	}
}

// Now is the time in this world.
func (w *World) Now() time.Time { return w.clock.Now() }

// Pass lets time pass.
func (w *World) Pass(d time.Duration) { w.clock.Advance(d) }

func (w *World) advance(to time.Time) {
	if now := w.clock.Now(); to.After(now) {
		w.clock.Advance(to.Sub(now))
	}
}

// Step returns a step of a worker, or nil for other workers, such as the broker.
func (w *World) Step(workerName, step string) worker.Step { return w.steps[workerName][step] }

// Run is one operation from its start to its end.
type Run struct {
	*rehearsal.Player
	Operation  event.Operation
	Executions []Execution
	Credential map[string]any
}

// Left is the state that an operation leaves to the next one of the instance.
type Left struct {
	Details   json.RawMessage
	Completed []string
}

// Left returns the state for the next operation.
func (r *Run) Left() Left {
	s := r.Status()
	left := Left{Details: s.Details}
	if r.Operation.Type != event.Deprovision {
		return left
	}
	if s.State == event.Succeeded && len(s.NotCompleted) == 0 {
		return Left{}
	}
	if !r.Operation.Temporary {
		left.Completed = r.Completed()
	}
	return left
}

// announce announces the orchestration of an upgrade, as the orchestrator does before its first operation.
func (w *World) announce(op event.Operation) {
	w.t.Helper()
	if op.Upgrade == nil || !op.Upgrade.Notification || op.Upgrade.DryRun {
		return
	}
	question, err := json.Marshal(event.NotifyRequest{
		OrchestrationID: op.Upgrade.OrchestrationID, Type: op.Type,
		Instances: []event.NotifiedInstance{{InstanceID: op.InstanceID, Begin: w.Now()}},
	})
	require.NoError(w.t, err)
	_, err = w.questions[event.AskNotify](w.t.Context(), question)
	require.NoError(w.t, err)
}

// Do runs an operation to its end.
func (w *World) Do(p *process.Process, op event.Operation, before Left, credentials map[string]any, hook Hook) *Run {
	w.t.Helper()
	w.announce(op)
	run := &Run{Player: rehearsal.New(p, op), Operation: op, Credential: credentials}
	require.NoError(w.t, run.Start(before.Details, before.Completed, w.Now()))
	memory := workertest.NewMemory()
	attempt := ""
	for range rounds {
		name, command, ok := run.Command()
		if !ok {
			due := run.Due()
			if due.IsZero() {
				return run
			}
			w.advance(due)
			require.NoError(w.t, run.Wake(w.Now()))
			continue
		}
		if now := fmt.Sprint(command.Stage, command.StageAttempt); now != attempt {
			attempt, memory = now, workertest.NewMemory()
		}
		result, lost := w.execute(run, name, command, memory, hook)
		if lost {
			// Without an answer, the command is sent again after its deadline.
			w.advance(run.Due())
			require.NoError(w.t, run.Wake(w.Now()))
			continue
		}
		kind, payload := result.Payload()
		e, err := bus.New(kind, event.DispatchID(op.ID, command.Cursor, command.Dispatch), event.WorkerSource(name), op.ID, w.Now(), payload)
		require.NoError(w.t, err)
		require.NoError(w.t, run.Answer(e, w.Now()))
	}
	w.t.Fatalf("the operation does not end: %+v", run.Status())
	return nil
}

// silence is the time limit of a step whose system does not answer.
const silence = 150 * time.Millisecond

func (w *World) execute(run *Run, name string, c event.StepExecute, m *workertest.Memory, hook Hook) (result worker.Result, lost bool) {
	w.t.Helper()
	var f *Fault
	if hook != nil {
		f, lost = hook(name, c)
	}
	step := w.Step(name, c.Step)
	if step == nil {
		if name != "broker" && name != "kyma" {
			w.t.Fatalf("no worker serves step %s of worker %s", c.Step, name)
		}
		step = done(c.Step)
	}
	before := m.Values()
	ctx, kill := context.WithCancel(context.Background())
	defer kill()
	executed := c
	if f != nil && f.Silent {
		executed.ExecuteBefore = w.Now().Add(silence)
	}
	w.door.arm(f, kill)
	if f != nil && f.Cancel {
		require.NoError(w.t, run.Cancel("not wanted any more", w.Now()))
	}
	result = worker.Execute(ctx, step, worker.Execution{
		Command: executed, Worker: event.Worker{Name: name, Version: "test"}, Memory: m, Now: w.Now,
		Claim: func(_ context.Context, q event.CredentialsRequest) (json.RawMessage, error) {
			if q.Name == event.ClaimNeighbours {
				return json.Marshal(event.Neighbours{})
			}
			return json.Marshal(run.Credential[q.Name])
		},
		Keep: func(_ context.Context, q event.KeepRequest) error {
			w.kept[q.InstanceID+"/"+name] = q.Value
			return nil
		},
		Kept: func(_ context.Context, q event.KeptRequest) (json.RawMessage, error) {
			return w.kept[q.InstanceID+"/"+name], nil
		},
	})
	x := Execution{Worker: name, Command: c, Calls: w.door.disarm(), Lost: lost}
	if f != nil && f.KillAfter > 0 && len(x.Calls) >= f.KillAfter {
		x.Lost = true
	}
	if x.Lost { // what a killed worker has not written is gone, and what it has written is there
		run.Executions = append(run.Executions, x)
		return result, true
	}
	x.Details, x.StageMemory = saved(w.t, result.Details), added(m, before)
	run.Executions = append(run.Executions, x)
	return result, false
}

// done is a step that does nothing.
type done string

// Name implements worker.Step.
func (d done) Name() string { return string(d) }

// Run implements worker.Step.
func (done) Run(_ context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	return op, 0, nil
}

func saved(t testing.TB, details json.RawMessage) []string {
	t.Helper()
	if len(details) == 0 {
		return nil
	}
	var members map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(details, &members))
	return slices.Sorted(maps.Keys(members))
}

// Held counts the objects of the external systems, by "system/kind".
func (w *World) Held() map[string]int64 {
	w.t.Helper()
	var systems struct {
		Data []struct {
			Name    string           `json:"name"`
			Objects map[string]int64 `json:"objects"`
		} `json:"data"`
	}
	w.Admin(http.MethodGet, "/admin/systems", nil, &systems)
	held := map[string]int64{}
	for _, s := range systems.Data {
		for kind, n := range s.Objects {
			if n > 0 {
				held[s.Name+"/"+kind] = n
			}
		}
	}
	return held
}

// ControlPlane returns a kubeconfig of the control plane, which can also be the cluster of a customer.
func (w *World) ControlPlane() string {
	return `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
		"clusters":[{"name":"c","cluster":{"server":"` + w.url + `/k8s/control-plane"}}],"users":[{"name":"u","user":{"token":"keb"}}]}`
}

// NotServed returns the calls that no simulated system serves.
func (w *World) NotServed() []worker.Call {
	w.t.Helper()
	var systems struct {
		Data []struct {
			Name  string `json:"name"`
			Calls []struct{ Method, Route string }
		} `json:"data"`
	}
	w.Admin(http.MethodGet, "/admin/systems", nil, &systems)
	var calls []worker.Call
	for _, s := range systems.Data {
		for _, c := range s.Calls {
			if c.Route == "(not served)" {
				calls = append(calls, worker.Call{System: s.Name, Operation: c.Method + " " + c.Route})
			}
		}
	}
	return calls
}

// Objects returns the objects of a system with their members, "kind" and "id".
func (w *World) Objects(system string) []map[string]any {
	w.t.Helper()
	var page struct {
		Data []map[string]any `json:"data"`
	}
	w.Admin(http.MethodGet, "/admin/systems/"+system+"/objects", nil, &page)
	return page.Data
}

// client calls the landscape directly.
var client = &http.Client{Timeout: time.Minute}

// Admin calls the admin API of the landscape.
func (w *World) Admin(method, path string, body, into any) {
	w.t.Helper()
	var payload io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		require.NoError(w.t, err)
		payload = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, payload)
	require.NoError(w.t, err)
	resp, err := client.Do(req)
	require.NoError(w.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		w.t.Fatalf("%s %s: %d %s %v", method, path, resp.StatusCode, data, err)
	}
	if into != nil {
		if err := json.Unmarshal(data, into); err != nil {
			w.t.Fatalf("%s %s: %v in %s", method, path, err, data)
		}
	}
}

// added returns the names of new and changed values.
func added(m *workertest.Memory, before map[string][]byte) []string {
	var names []string
	for key, v := range m.Values() {
		if was, ok := before[key]; !ok || !bytes.Equal(was, v) {
			names = append(names, memoryName(key, v))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// memoryName returns the name of an entry of the stage memory as in the descriptions of the steps.
func memoryName(key string, value []byte) string {
	if name, ok := strings.CutPrefix(key, "value."); ok {
		return name
	}
	var set struct {
		Component string `json:"component"`
	}
	if json.Unmarshal(value, &set) != nil {
		return key
	}
	return "overrides:" + set.Component
}
