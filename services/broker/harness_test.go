package broker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/broker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Tests{M: m}) }

const (
	serviceID = "47c9dcbf-ff30-448e-ab36-d3bad66ba281"
	azure     = "4deee563-e5ec-4731-b9b1-53b42d855f0c"
	azureLite = "8cb22518-aa26-44c5-91a0-e669ec9bf443"
	aws       = "361c511f-f939-4621-b228-d0fb79a1fe15"
	trial     = "7d55d31d-35ae-4438-bf13-6ffdfa107d9f"
	free      = "b1a5764e-2ea1-4f95-94c0-2b4538b37b55"
	own       = "03e3cb66-a4c6-4c6a-b4b0-5d42224debea"
	// canary must appear only in answers to workers.
	canary = "CANARY-7f3a-secret"
	// waitTimeout is the maximum time of a wait, much longer than needed on a busy machine.
	waitTimeout = time.Minute
)

// bench runs a broker with a real database, a real bus, and a simulated orchestrator.
type bench struct {
	t testing.TB
	// database breaks the broker's connections; db is a direct connection.
	database *testkit.TCPProxy
	db       *sqlx.DB
	nats     *testkit.NATSServer
	bus      *bus.Bus
	orch     *orchestrator
	cfg      broker.Config
	// now is the broker's clock; nil means time.Now.
	now      func() time.Time
	url      string
	log      *testkit.Log
	registry *prometheus.Registry
	server   *httptest.Server

	broker  *broker.Broker
	handler atomic.Pointer[http.Handler]
	// worked contains the method and path of each handled request, including requests of clients that have disconnected.
	worked sync.Map
	stop   func()
}

func newBench(t testing.TB, change func(*broker.Config)) *bench {
	t.Helper()
	return newBenchAt(t, nil, change)
}

// newBenchAt is newBench with a clock for the broker.
func newBenchAt(t testing.TB, now func() time.Time, change func(*broker.Config)) *bench {
	t.Helper()
	direct := pgtest.Database(t, broker.Migrate)
	u, err := url.Parse(direct)
	require.NoError(t, err)
	b := &bench{t: t, now: now, nats: testkit.NATS(t), log: &testkit.Log{}, database: testkit.Proxy(t, u.Host)}
	u.Host = b.database.Addr()
	b.url = u.String()
	b.db = b.open(direct, 4)
	b.bus = testkit.Bus(t, b.nats.URL())
	b.cfg = service.Defaults[broker.Config]()
	b.cfg.Database.URL, b.cfg.StatementTimeout = b.url, 30*time.Second
	b.cfg.User, b.cfg.Password = "keb", "keb-password"
	b.cfg.SealKeys = "k1:" + seal.NewKey()
	// Concurrent transactions wait for each other, and the machine may be busy.
	b.cfg.StoreTimeout = 30 * time.Second
	b.cfg.SweepEvery, b.cfg.SweepAge = 50*time.Millisecond, 100*time.Millisecond
	b.cfg.RepairEvery, b.cfg.RepairSilence = 50*time.Millisecond, time.Hour
	b.cfg.StepRetry = 10 * time.Millisecond
	if change != nil {
		change(&b.cfg)
	}
	b.orch = newOrchestrator(t, testkit.Connect(t, b.nats.URL()))
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { b.worked.Store(r.Method+" "+r.URL.Path, true) }()
		(*b.handler.Load()).ServeHTTP(w, r)
	}))
	t.Cleanup(b.server.Close)
	b.start()
	t.Cleanup(func() { b.stop() })
	return b
}

func (b *bench) open(address string, connections int) *sqlx.DB {
	b.t.Helper()
	db, err := postgres.Open(b.t.Context(), postgres.Config{URL: address, MaxOpen: connections})
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = db.Close() })
	return db
}

// start creates and runs a broker; restart calls stop and start.
func (b *bench) start() {
	b.t.Helper()
	b.prepare()
	b.run()
}

// prepare creates a broker that answers requests without its background work.
func (b *bench) prepare() {
	b.t.Helper()
	b.registry = prometheus.NewRegistry()
	srv, err := broker.New(b.t.Context(), b.cfg, broker.Deps{
		Bus: b.bus, Registerer: b.registry, Now: b.now,
		Log: slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = srv.Close() }) // a broker that was replaced without a stop
	h := documented(b.t, srv.Handler())
	b.handler.Store(&h)
	b.broker = srv
	b.stop = func() { b.closeBroker(srv) }
}

// run starts the background work of the prepared broker.
func (b *bench) run() {
	srv := b.broker
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	b.stop = func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("broker ended: %v", err)
		}
		b.closeBroker(srv)
	}
}

func (b *bench) closeBroker(srv *broker.Broker) {
	if err := srv.Close(); err != nil {
		b.t.Errorf("close the broker: %v", err)
	}
	b.stop = func() {}
}

func (b *bench) restart() {
	b.stop()
	b.start()
}

// answer is the response to a request.
type answer struct {
	status int
	header http.Header
	body   map[string]any
	raw    string
}

func (a answer) text(name string) string {
	s, _ := a.body[name].(string)
	return s
}

func (b *bench) send(method, path string, body any, header ...string) answer {
	b.t.Helper()
	a, err := b.try(method, path, body, header...)
	require.NoError(b.t, err)
	return a
}

func (b *bench) try(method, path string, body any, header ...string) (answer, error) {
	var payload io.Reader = http.NoBody
	if body != nil {
		raw, ok := body.([]byte) // sent unchanged, even if it is not JSON
		if !ok {
			var err error
			if raw, err = json.Marshal(body); err != nil {
				return answer{}, err
			}
		}
		payload = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, b.server.URL+path, payload)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("X-Broker-API-Version", "2.17")
	req.SetBasicAuth(b.cfg.User, b.cfg.Password)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := b.server.Client().Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: res.StatusCode, header: res.Header, raw: string(raw)}
	_ = json.Unmarshal(raw, &a.body)
	return a, nil
}

func order(plan string) map[string]any {
	return map[string]any{
		"service_id": serviceID, "plan_id": plan, "context": accountContext(), "parameters": map[string]any{"name": "sample"},
	}
}

func accountContext() map[string]any {
	return map[string]any{
		"globalaccount_id": "ga-1", "subaccount_id": "sa-1", "user_id": "User@example.org", "platform": "cloudfoundry",
		"sm_operator_credentials": map[string]any{
			"clientid": "id", "clientsecret": canary, "sm_url": "https://sm.example.org", "url": "https://uaa.example.org",
		},
	}
}

func (b *bench) put(id string, body any) answer {
	b.t.Helper()
	return b.send(http.MethodPut, "/v2/service_instances/"+id+"?accepts_incomplete=true", body)
}

func (b *bench) delete(id string) answer {
	b.t.Helper()
	return b.send(http.MethodDelete, "/v2/service_instances/"+id+"?accepts_incomplete=true&service_id="+serviceID+"&plan_id="+azure, nil)
}

func (b *bench) last(id, operation string) answer {
	b.t.Helper()
	return b.send(http.MethodGet, "/v2/service_instances/"+id+"/last_operation?operation="+operation, nil)
}

// accepted returns the operation of a response that must be 202.
func (b *bench) accepted(a answer) string {
	b.t.Helper()
	if a.status != http.StatusAccepted {
		b.t.Fatalf("status %d %s, want 202", a.status, a.raw)
	}
	return a.text("operation")
}

func (b *bench) ended(id, operation string, want string) {
	b.t.Helper()
	b.endedBy(b.last, id, operation, want)
}

// endedBy is ended with another way to query the state.
func (b *bench) endedBy(last func(id, operation string) answer, id, operation string, want string) {
	b.t.Helper()
	var a answer
	testkit.Eventually(b.t, waitTimeout, "end of the operation", func() bool {
		a = last(id, operation)
		return a.status != http.StatusOK || a.text("state") != "in progress"
	})
	if a.status != http.StatusOK || a.text("state") != want {
		b.t.Fatalf("status %d %s, want state %q", a.status, a.raw, want)
	}
}

func (b *bench) provisioned(id string) {
	b.t.Helper()
	b.ended(id, b.accepted(b.put(id, order(azure))), "succeeded")
}

func (b *bench) expect(what string, a answer, status int) {
	b.t.Helper()
	if a.status != status {
		b.t.Errorf("%s: status %d %s, want %d", what, a.status, a.raw, status)
	}
}

// refused expects a status, and a description that contains a text.
func (b *bench) refused(what string, a answer, status int, text string) {
	b.t.Helper()
	if a.status != status || !strings.Contains(a.text("description"), text) {
		b.t.Errorf("%s: status %d %.300s, want %d and %q", what, a.status, a.raw, status, text)
	}
}

// busy expects the rejection of a request because another operation runs.
func (b *bench) busy(what string, a answer) {
	b.t.Helper()
	if a.status != http.StatusUnprocessableEntity || a.text("error") != "ConcurrencyError" {
		b.t.Errorf("%s: status %d %s, want 422 and ConcurrencyError", what, a.status, a.raw)
	}
}

// withoutOperation expects a success that starts no operation.
func (b *bench) withoutOperation(what string, a answer) {
	b.t.Helper()
	if a.status != http.StatusOK || a.text("operation") != "" {
		b.t.Errorf("%s: status %d %s, want 200 without an operation", what, a.status, a.raw)
	}
}

// rows expects a number of rows.
func (b *bench) rows(what string, want int, query string, args ...any) {
	b.t.Helper()
	if n := b.count(query, args...); n != want {
		b.t.Errorf("%s: %d, want %d", what, n, want)
	}
}

func (b *bench) exec(query string, args ...any) {
	b.t.Helper()
	_, err := b.db.Exec(query, args...)
	require.NoError(b.t, err)
}

func (b *bench) hold(on bool) { b.orch.set(func() { b.orch.held = on }) }

// fail makes operations of a type fail.
func (b *bench) fail(t event.OperationType, on bool) { b.orch.set(func() { b.orch.failing[t] = on }) }

// requested waits until the orchestrator has an operation.
func (b *bench) requested(operation string) {
	b.t.Helper()
	testkit.Eventually(b.t, waitTimeout, "the orchestrator has the request", func() bool {
		b.orch.mu.Lock()
		defer b.orch.mu.Unlock()
		return b.orch.operations[operation] != nil
	})
}

// started orders an instance and holds its provisioning after its start.
func (b *bench) started(id string) (operation string) {
	b.t.Helper()
	b.hold(true)
	operation = b.accepted(b.put(id, order(azure)))
	testkit.Eventually(b.t, waitTimeout, "start", func() bool { return b.cursor(operation) == 1 })
	return operation
}

func (b *bench) count(query string, args ...any) int {
	b.t.Helper()
	var n int
	require.NoError(b.t, b.db.Get(&n, query, args...))
	return n
}

// claimant is the worker that receives the commands of all operations.
const claimant = "btp"

// claim claims credentials as the worker that has the command.
func (b *bench) claim(instanceID, operationID, name string) (event.CredentialsAnswer, error) {
	return b.claimAs(claimant, instanceID, operationID, name)
}

func (b *bench) claimAs(worker, instanceID, operationID, name string) (event.CredentialsAnswer, error) {
	b.t.Helper()
	if b.count(`SELECT count(*) FROM broker.operations WHERE id = $1 AND state IN ('pending', 'in progress')`, operationID) > 0 {
		b.requested(operationID) // a worker receives a command only afterwards
	}
	var a event.CredentialsAnswer
	err := b.ask(event.AskCredentialsAs(worker), event.CredentialsRequest{InstanceID: instanceID, OperationID: operationID, Name: name}, &a)
	return a, err
}

// ask sends a request over the bus. It retries until the broker subscribes, shortly after its start.
func (b *bench) ask(subject string, question, answer any) error {
	b.t.Helper()
	var err error
	testkit.Eventually(b.t, waitTimeout, "an answer on "+subject, func() bool {
		err = b.bus.AskWithTimeout(b.t.Context(), waitTimeout, subject, question, answer)
		return !errors.Is(err, bus.ErrNoAnswer)
	})
	return err
}
