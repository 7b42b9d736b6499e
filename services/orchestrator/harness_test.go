package orchestrator_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/orchestrator"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

// patience ends a test that hangs. No test measures with it, so it only has to be long enough for a busy machine.
const patience = 2 * time.Minute

// testProcesses are small processes with every relevant feature.
var testProcesses = fstest.MapFS{
	"provision.yaml": {Data: []byte(`
operation: provision
timeout: 1h
stages:
  - name: start
    steps:
      - {name: Starting, worker: orchestrator}
  - name: create
    steps:
      - {name: First, worker: alpha, retry: {every: 50ms, timeout: 10m}}
      - {name: Second, worker: beta, retry: {every: 50ms, timeout: 10m}}
      - {name: Poll, worker: beta, retry: {every: 50ms, timeout: 10m, scope: step}, wait: {timeout: 10m}}
  - name: finish
    steps:
      - {name: Optional, worker: alpha, when: 'plan.name != "trial"', onFailure: skip, onTimeout: skip, retry: {every: 50ms, timeout: 1s}}
      - {name: Last, worker: beta, retry: {every: 50ms, timeout: 10m}}
`)},
	"deprovision.yaml": {Data: []byte(`
operation: deprovision
timeout: 1h
stages:
  - name: init_step
    steps:
      - {name: Init_Step, worker: orchestrator}
  - name: remove_first
    steps:
      - {name: Remove_First, worker: alpha, retry: {every: 50ms, timeout: 1s}, onTimeout: skip, onFailure: skip}
  - name: remove_second
    steps:
      - {name: Remove_Second, worker: beta, retry: {every: 50ms, timeout: 1s}, onTimeout: skip, onFailure: skip}
`)},
	"update.yaml": {Data: []byte(`
operation: update
timeout: 1h
stages:
  - name: change
    steps:
      - {name: Change, worker: alpha, retry: {every: 50ms, timeout: 10m}}
`)},
}

// behaviour is the implementation of a test step.
type behaviour func(ctx context.Context, op worker.Operation) (worker.Operation, time.Duration, error)

func done(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
	return op, 0, nil
}

// script contains the behaviour of steps, and counts their executions.
type script struct {
	mu    sync.Mutex
	steps map[string]behaviour
	runs  []string
	every map[string]int
}

func (s *script) set(step string, b behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps[step] = b
}

func (s *script) count(step string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.every[step]
}

// countOf returns how often a step was started for an operation.
func (s *script) countOf(operation, step string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, run := range s.runs {
		if run == operation+" "+step {
			n++
		}
	}
	return n
}

type scripted struct {
	name   string
	script *script
}

func (s scripted) Name() string { return s.name }

func (s scripted) Run(ctx context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	s.script.mu.Lock()
	b := s.script.steps[s.name]
	s.script.runs = append(s.script.runs, op.ID+" "+s.name)
	s.script.every[s.name]++
	s.script.mu.Unlock()
	if b == nil {
		b = done
	}
	return b(ctx, op)
}

// system is an orchestrator with workers, a real database and a real bus.
type system struct {
	t        *testing.T
	nats     *testkit.NATSServer
	database string
	bus      *bus.Bus
	db       *sqlx.DB
	keys     *seal.Keyring
	script   *script
	log      *slog.Logger
	cfg      orchestrator.Config
	// now is the clock of the orchestrators; nil uses the real clock.
	now func() time.Time
	// api serves the first orchestrator. A test that needs its address earlier creates it without starting it.
	api *httptest.Server
	// registry registers the metrics. It allows only one orchestrator.
	registry *prometheus.Registry

	mu    sync.Mutex
	facts []fact
}

type fact struct {
	Type event.Type
	event.StepFinished
}

// workerSteps lists the steps of the test processes, by worker.
var workerSteps = map[string][]string{
	"alpha": {"First", "Optional", "Remove_First", "Change", "Upgrade"},
	"beta":  {"Second", "Poll", "Last", "Remove_Second"},
}

// newSystem starts database and bus, without orchestrators and workers.
func newSystem(t *testing.T) *system {
	t.Helper()
	s := &system{
		t: t, nats: testkit.NATS(t), database: pgtest.Database(t, orchestrator.Migrate),
		script: &script{steps: map[string]behaviour{}, every: map[string]int{}}, log: testkit.Logger(t),
	}
	s.bus = testkit.Bus(t, s.nats.URL())
	db, err := postgres.Open(t.Context(), postgres.Config{URL: s.database})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	s.db = db
	s.keys, err = seal.ParseKeyring("k1:" + seal.NewKey())
	require.NoError(t, err)
	s.cfg = configAt(s.database)
	s.cfg.Processes, s.cfg.SweepEvery, s.cfg.AskWorkersEvery = testProcesses, 100*time.Millisecond, 200*time.Millisecond
	sub, err := s.bus.NATS().Subscribe("keb.fact.>", s.seeFact)
	require.NoError(t, err)
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	return s
}

// configAt returns the default configuration with a database.
func configAt(url string) orchestrator.Config {
	cfg := service.Defaults[orchestrator.Config]()
	cfg.Database.URL = url
	return cfg
}

func (s *system) seeFact(m *nats.Msg) {
	e, err := bus.Decode(m.Header, m.Data)
	if err != nil {
		return
	}
	f := fact{Type: event.Type(e.Type())}
	if json.Unmarshal(e.Data(), &f.StepFinished) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.facts = append(s.facts, f)
}

// running is a started component; stop ends it and waits.
type running struct{ stop func() }

func start(t *testing.T, what string, run func(ctx context.Context) error) running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s ended: %v", what, err)
		}
	})
	t.Cleanup(stop)
	return running{stop: stop}
}

// orchestrator starts another orchestrator.
func (s *system) orchestrator() running {
	s.t.Helper()
	return s.orchestratorOn(s.nats.URL())
}

// orchestratorOn starts another orchestrator that connects to the bus at an address.
func (s *system) orchestratorOn(address string) running {
	s.t.Helper()
	b := testkit.Connect(s.t, address)
	deps := orchestrator.Deps{Bus: b, Memory: stagemem.New(b.JetStream(), s.keys), Log: s.log, Now: s.now}
	if s.registry != nil {
		deps.Registerer, deps.Gatherer = s.registry, s.registry
	}
	o, err := orchestrator.New(s.t.Context(), s.cfg, deps)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = o.Close() })
	if s.api == nil {
		s.api = httptest.NewUnstartedServer(nil)
	}
	if s.api.URL == "" {
		s.api.Config.Handler = checked(s.t, o.Handler())
		s.api.Start()
		s.t.Cleanup(s.api.Close)
	}
	return start(s.t, "orchestrator", o.Run)
}

// worker starts another worker.
func (s *system) worker(name string) running {
	s.t.Helper()
	b := testkit.Connect(s.t, s.nats.URL())
	steps := make([]worker.Step, 0, len(workerSteps[name]))
	for _, step := range workerSteps[name] {
		steps = append(steps, scripted{name: step, script: s.script})
	}
	w, err := worker.New(worker.Config{Name: name, Version: "1.0.0", DrainTimeout: time.Second}, worker.Deps{
		Bus: b, StageMemory: stagemem.New(b.JetStream(), s.keys), Log: s.log,
	}, steps...)
	require.NoError(s.t, err)
	return start(s.t, "worker "+name, w.Run)
}

// start starts one orchestrator and both workers.
func (s *system) start() running {
	s.t.Helper()
	o := s.orchestrator()
	s.worker("alpha")
	s.worker("beta")
	return o
}

func operation(t event.OperationType, instance, plan string) event.Operation {
	return event.Operation{
		ID: uuid.Must(uuid.NewV7()).String(), Type: t, InstanceID: instance, Plan: event.Plan{ID: plan, Name: plan},
		Context:    event.Context{GlobalAccountID: "ga", SubaccountID: "sa"},
		Runtime:    event.Runtime{Name: "demo", ShootName: "c-1234567", ShootDomain: "c-1234567.example.com", Provider: "azure", Region: "eastus"},
		Parameters: json.RawMessage(`{"name":"demo"}`),
	}
}

// request publishes requests for operations.
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
	require.NoError(s.t, s.bus.Publish(s.t.Context(), messages...))
}

// state returns the state of an operation in the database; empty if it does not exist.
func (s *system) state(id string) event.OperationState {
	var state string
	err := s.db.Get(&state, `SELECT COALESCE((SELECT state FROM orchestrator.operations WHERE id = $1), '')`, id)
	require.NoError(s.t, err)
	return event.OperationState(state)
}

func (s *system) await(op event.Operation, want event.OperationState) {
	s.t.Helper()
	testkit.Eventually(s.t, patience, fmt.Sprintf("operation %s is %s", op.Type, want), func() bool { return s.state(op.ID) == want })
}

// history returns the history of an operation as "step outcome", or the kind of other lines.
func (s *system) history(id string) []string {
	s.t.Helper()
	var d struct {
		History []struct{ Step, Outcome string }
	}
	s.get("/operations/"+id, &d)
	lines := make([]string, len(d.History))
	for i, h := range d.History {
		lines[i] = h.Outcome
		if h.Step != "" {
			lines[i] = h.Step + " " + h.Outcome
		}
	}
	return lines
}

// do sends a request to the operator API, and returns the status and the body of the answer. A body that is no text is sent as JSON. The
// headers are pairs of a name and a value.
func (s *system) do(method, path string, body any, headers ...string) (int, string) {
	s.t.Helper()
	text, ok := body.(string)
	if !ok && body != nil {
		encoded, err := json.Marshal(body)
		require.NoError(s.t, err)
		text = string(encoded)
	}
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.api.URL+path, strings.NewReader(text))
	require.NoError(s.t, err)
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return response.StatusCode, string(answer)
}

// must sends a request, which must be answered with a status, and decodes the answer.
func (s *system) must(status int, method, path string, body, into any) {
	s.t.Helper()
	code, answer := s.do(method, path, body)
	require.Equal(s.t, status, code, "%s %s: %s", method, path, answer)
	if into != nil {
		require.NoErrorf(s.t, json.Unmarshal([]byte(answer), into), "%s %s: %s", method, path, answer)
	}
}

func (s *system) get(path string, into any) {
	s.t.Helper()
	s.must(http.StatusOK, http.MethodGet, path, nil, into)
}

func (s *system) post(path, body string) (int, string) {
	s.t.Helper()
	return s.do(http.MethodPost, path, body)
}

// failing is a step that fails its operation, and hourly one that asks for another try in an hour.
func failing(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
	return worker.Fail(op, &worker.Error{Component: "ext", Reason: "broken", Message: "ext is broken"})
}

func hourly(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
	return op, time.Hour, nil
}

// factsOf returns the facts about an operation as "type [step outcome]", ordered by cursor. Commands are sent before facts, so facts of one
// transition may arrive after those of the next.
func (s *system) factsOf(id string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var facts []fact
	for _, f := range s.facts {
		if f.OperationID == id {
			facts = append(facts, f)
		}
	}
	slices.SortStableFunc(facts, func(a, b fact) int { return cmp.Compare(a.Cursor, b.Cursor) })
	var lines []string
	for _, f := range facts {
		line := string(f.Type)
		if f.Step != "" && f.Type == event.TypeStepFinished {
			line += " " + f.Step + " " + string(f.Outcome)
		}
		lines = append(lines, line)
	}
	return lines
}

// repeats returns the duplicate lines of a list.
func repeats(lines []string) []string {
	seen := map[string]int{}
	var twice []string
	for _, l := range lines {
		if seen[l]++; seen[l] == 2 {
			twice = append(twice, l)
		}
	}
	slices.Sort(twice)
	return twice
}
