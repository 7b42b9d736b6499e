package console

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/test/internal/harness"
)

// patience is how long anything may take before a test gives up; a busy machine must not fail a test.
const patience = 60 * time.Second

var processes = fstest.MapFS{
	"provision.yaml": {Data: []byte(`
operation: provision
timeout: 1h
stages:
  - name: start
    steps:
      - {name: Starting, worker: orchestrator}
  - name: create
    steps:
      - {name: Prepare, worker: alpha, retry: {every: 100ms, timeout: 10m}}
      - {name: Register, worker: beta, when: 'plan.name != "trial"', retry: {every: 2s, timeout: 10m}, execution: 1m}
  - name: finish
    steps:
      - {name: Finish, worker: alpha, retry: {every: 100ms, timeout: 10m, scope: step}}
`)},
	"deprovision.yaml": {Data: []byte(`
operation: deprovision
timeout: 1h
stages:
  - name: remove
    steps:
      - {name: Remove, worker: alpha, retry: {every: 100ms, timeout: 1m}, onTimeout: skip, onFailure: skip}
`)},
}

// steps of the processes, by worker.
var steps = map[string][]string{"alpha": {"Prepare", "Finish", "Remove"}, "beta": {"Register"}}

// behaviour is what a step of a test does.
type behaviour func(op worker.Operation) (worker.Operation, time.Duration, error)

func retry(message string) behaviour {
	return func(op worker.Operation) (worker.Operation, time.Duration, error) {
		return worker.Retry(op, time.Minute, errors.New(message))
	}
}

func fail(message string) behaviour {
	return func(op worker.Operation) (worker.Operation, time.Duration, error) { return op, 0, errors.New(message) }
}

// script lets a test say what the steps do.
type script struct {
	mu    sync.Mutex
	steps map[string]behaviour
}

func (s *script) set(step string, b behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps[step] = b
}

type scripted struct {
	name   string
	script *script
}

func (s scripted) Name() string { return s.name }

func (s scripted) Run(_ context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	s.script.mu.Lock()
	b := s.script.steps[s.name]
	s.script.mu.Unlock()
	if b == nil {
		return op, 0, nil
	}
	return b(op)
}

// system is an orchestrator with workers, and the address where it serves the console.
type system struct {
	*harness.Services
	t      *testing.T
	script *script
	// addr stays the same when the orchestrator is started again.
	addr string
}

func newSystem(t *testing.T) *system {
	t.Helper()
	s := &system{Services: harness.NewServices(t, "", testkit.Logger(t)), t: t, script: &script{steps: map[string]behaviour{}}}
	s.Orchestrator.Processes = processes
	s.Orchestrator.SweepEvery, s.Orchestrator.AskWorkersEvery = 100*time.Millisecond, 200*time.Millisecond
	return s
}

// protect makes static tokens, and returns that of a viewer and that of an operator.
func (s *system) protect() (viewer, operator string) {
	s.t.Helper()
	viewer, operator = "viewer-"+uuid.NewString(), "operator-"+uuid.NewString()
	s.Orchestrator.Access = access.Config{TokensFile: harness.Tokens(s.t, viewer, operator)}
	return viewer, operator
}

// orchestrator starts the orchestrator with its server.
func (s *system) orchestrator() (stop func()) {
	s.t.Helper()
	s.addr, stop = s.StartOrchestrator(s.addr)
	return stop
}

func (s *system) worker(name string) (stop func()) {
	s.t.Helper()
	var list []worker.Step
	for _, step := range steps[name] {
		list = append(list, scripted{name: step, script: s.script})
	}
	return s.StartWorker(worker.Config{Name: name, Version: "1.4.0", DrainTimeout: time.Second}, list...)
}

// start starts the orchestrator and both workers.
func (s *system) start() {
	s.t.Helper()
	s.orchestrator()
	s.worker("alpha")
	s.worker("beta")
}

func provision(plan string) event.Operation {
	return event.Operation{
		ID: uuid.Must(uuid.NewV7()).String(), Type: event.Provision, InstanceID: uuid.NewString(), Plan: event.Plan{ID: plan, Name: plan},
		Context: event.Context{GlobalAccountID: "ga-1", SubaccountID: "sa-1"},
		Runtime: event.Runtime{Name: "demo", ShootName: "c-1234567", ShootDomain: "c-1234567.example.com", Provider: "azure", Region: "eastus"},
	}
}

// request puts requests for operations on the bus.
func (s *system) request(operations ...event.Operation) {
	s.t.Helper()
	messages := make([]bus.Message, len(operations))
	for i, op := range operations {
		e, err := bus.New(event.TypeOperationRequested, op.ID, event.SourceBroker, op.ID, time.Now(), event.OperationRequested{
			Operation: op, RequestedAt: time.Now().UTC(),
		})
		require.NoError(s.t, err)
		messages[i] = bus.Message{Subject: event.RequestSubject(op.Type), ID: op.ID, Event: e}
	}
	require.NoError(s.t, s.Bus.Publish(s.t.Context(), messages...))
}

// ask sends a request to the operator API, with a token if it is not empty, and reads the answer.
func (s *system) ask(method, path, token, body string, into any) int {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+s.addr+path, strings.NewReader(body))
	require.NoError(s.t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(s.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	if into != nil {
		require.NoErrorf(s.t, json.Unmarshal(text, into), "%s %s: %s", method, path, text)
	}
	return response.StatusCode
}

// act carries out an action on an operation, without access control.
func (s *system) act(op event.Operation, action string) {
	s.t.Helper()
	if code := s.ask(http.MethodPost, "/operations/"+op.ID+"/"+action, "", "", nil); code != http.StatusNoContent {
		s.t.Fatalf("%s: %d", action, code)
	}
}

// failing starts everything, and returns an operation that fails at Register.
func (s *system) failing() event.Operation {
	s.t.Helper()
	s.script.set("Register", retry("beta is closed"))
	s.start()
	op := provision("azure")
	s.request(op)
	s.awaitWaiting(op, "", "failing")
	return op
}

// state is the state of an operation.
type state struct {
	State, Step  string
	NotCompleted []string
	Waiting      *struct{ Reason string }
}

func (s *system) state(op event.Operation, token string) state {
	s.t.Helper()
	var out state
	s.ask(http.MethodGet, "/operations/"+op.ID, token, "", &out)
	return out
}

func (s *system) await(op event.Operation, token, want string) {
	s.t.Helper()
	testkit.Eventually(s.t, patience, "operation is "+want, func() bool { return s.state(op, token).State == want })
}

// awaitWaiting waits until an operation waits for a reason.
func (s *system) awaitWaiting(op event.Operation, token, reason string) {
	s.t.Helper()
	testkit.Eventually(s.t, patience, "operation waits: "+reason, func() bool {
		w := s.state(op, token).Waiting
		return w != nil && w.Reason == reason
	})
}
