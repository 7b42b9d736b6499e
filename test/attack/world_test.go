// Package attack attacks the APIs of the broker and the orchestrator over HTTP, as a client with access to their addresses would. It uses
// their own handlers and server, real TCP connections, real Postgres and real NATS.
package attack

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

// waitLimit is the time limit for one condition.
const waitLimit = 90 * time.Second

// The secrets of the services, which must not be in any answer or log.
const (
	platformPassword = "CANARY-platform-password"
	viewerToken      = "keb_CANARY-viewer"
	operatorToken    = "keb_CANARY-operator"
	clientSecret     = "CANARY-client-secret"
)

// figures counts the attacks and their results, by kind.
var figures = struct {
	mu   sync.Mutex
	rows map[string]*row
	more []string
}{rows: map[string]*row{}}

// row counts attacks; harmless are the answered ones, with public data or the data of an unusual but valid request.
type row struct{ tried, refused, harmless, cut int }

// tried counts an attack by its answer; status 0 is a connection that was closed without an answer.
func tried(kind string, status int) {
	figures.mu.Lock()
	defer figures.mu.Unlock()
	r := figures.rows[kind]
	if r == nil {
		r = &row{}
		figures.rows[kind] = r
	}
	r.tried++
	switch {
	case status == 0:
		r.cut++
	case status >= http.StatusBadRequest:
		r.refused++
	default:
		r.harmless++
	}
}

// measured adds a figure as a text.
func measured(format string, args ...any) {
	figures.mu.Lock()
	defer figures.mu.Unlock()
	figures.more = append(figures.more, fmt.Sprintf(format, args...))
}

// tests prints the figures after the tests.
type tests struct{ m *testing.M }

// Run implements goleak.TestingM.
func (t tests) Run() int {
	code := pgtest.Run(t.m)
	if len(figures.rows) > 0 {
		fmt.Printf("%-42s %6s %8s %7s %8s\n", "attack", "tried", "refused", "cut off", "harmless")
		var sum row
		for _, name := range slices.Sorted(maps.Keys(figures.rows)) {
			r := figures.rows[name]
			fmt.Printf("%-42s %6d %8d %7d %8d\n", name, r.tried, r.refused, r.cut, r.harmless)
			sum = row{tried: sum.tried + r.tried, refused: sum.refused + r.refused, harmless: sum.harmless + r.harmless, cut: sum.cut + r.cut}
		}
		fmt.Printf("%-42s %6d %8d %7d %8d\n", "all", sum.tried, sum.refused, sum.cut, sum.harmless)
		for _, line := range figures.more {
			fmt.Println(line)
		}
	}
	return code
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(tests{m}) }

// world is a broker and an orchestrator that serve like their commands.
type world struct {
	t             *testing.T
	osb, operator string // addresses
	db            *sqlx.DB
	log           *testkit.Log
	// instance is an instance of the platform, and operation its provisioning.
	instance, operation string
}

type options struct {
	http    service.HTTP
	clients access.ClientLimits
}

func newWorld(t *testing.T, o options) *world {
	t.Helper()
	w := &world{t: t, log: &testkit.Log{}}
	services := harness.NewServices(t, "", w.log.Logger())
	w.db = open(t, services.Broker.Database.URL)
	cfg := access.Config{TokensFile: harness.Tokens(t, viewerToken, operatorToken), TrustedProxies: []string{"127.9.9.9"}, Clients: o.clients}
	services.HTTP, services.Orchestrator.Access, services.Broker.Access = o.http, cfg, cfg
	services.Broker.Password = platformPassword
	w.operator, _ = services.StartOrchestrator("")
	w.osb, _ = services.StartBroker()
	w.order()
	return w
}

func open(t *testing.T, url string) *sqlx.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Config{URL: url, MaxOpen: 16})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// order creates an instance, and waits until its operation waits for a worker; there are no workers.
func (w *world) order() {
	w.t.Helper()
	order := harness.Azure()
	order.ClientSecret = clientSecret
	body, err := json.Marshal(order.Body())
	require.NoError(w.t, err)
	w.instance = order.InstanceID
	a := w.one(w.osb, "127.0.0.1", platform(request{method: "PUT", target: "/v2/service_instances/" + w.instance + "?accepts_incomplete=true", body: string(body)}))
	if a.status != http.StatusAccepted {
		w.t.Fatalf("order: %d %s", a.status, a.body)
	}
	var accepted struct{ Operation string }
	require.NoError(w.t, json.Unmarshal([]byte(a.body), &accepted))
	w.operation = accepted.Operation
	testkit.Eventually(w.t, waitLimit, "the operation waits for a worker", func() bool {
		a := w.one(w.operator, "127.0.0.1", as(viewerToken, request{method: "GET", target: "/operations?waiting=no_worker"}))
		if a.status != http.StatusOK {
			w.t.Fatalf("look for the operation: %d %s", a.status, a.body)
		}
		return strings.Contains(a.body, w.operation)
	})
}

// state returns all data that an attack could change.
func (w *world) state() string {
	w.t.Helper()
	var rows []string
	err := w.db.Select(&rows, `
SELECT 'instance ' || id || request_hash FROM broker.instances
UNION ALL SELECT 'broker operation ' || id || type FROM broker.operations
UNION ALL SELECT 'binding ' || id FROM broker.bindings
UNION ALL SELECT 'operation ' || id || ' ' || type || ' ' || state FROM orchestrator.operations
UNION ALL SELECT 'orchestration ' || id FROM orchestrator.orchestrations
UNION ALL SELECT 'action ' || id || ' ' || action || ' ' || target FROM orchestrator.actions WHERE outcome NOT IN ('refused', 'failed')
ORDER BY 1`)
	require.NoError(w.t, err)
	return strings.Join(rows, "\n")
}

// unchanged checks at the end of a test that the data is unchanged, and that the log contains no secrets and no panics.
func (w *world) unchanged(t *testing.T) {
	t.Helper()
	before, logged := w.state(), len(w.log.String())
	t.Cleanup(func() {
		if after := w.state(); after != before {
			t.Errorf("the data has changed: from\n%s\nto\n%s", before, after)
		}
		log := w.log.String()[logged:]
		for line := range strings.Lines(log) {
			if strings.Contains(line, "CANARY") {
				t.Errorf("the log has a secret: %s", line)
			}
			if strings.Contains(line, "level=ERROR") || strings.Contains(line, "panic") {
				t.Errorf("an error is logged: %s", line)
			}
		}
	})
}

// request is a request on the wire.
type request struct {
	method, target string
	// header are lines "Name: value".
	header []string
	body   string
	// host is the Host header; default the address.
	host string
	// form is the content type of the body; default JSON.
	form string
}

func platform(r request) request {
	r.header = append(slices.Clone(r.header), "Authorization: Basic "+basic("keb", platformPassword), "X-Broker-API-Version: 2.17")
	return r
}

func as(token string, r request) request {
	r.header = append(slices.Clone(r.header), "Authorization: Bearer "+token)
	return r
}

// text returns the complete request; last closes the connection afterwards.
func (r request) text(address string, last bool) string {
	host := r.host
	if host == "" {
		host = address
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.method, r.target, host)
	for _, line := range r.header {
		b.WriteString(line + "\r\n")
	}
	if last {
		b.WriteString("Connection: close\r\n")
	}
	if r.body != "" {
		form := r.form
		if form == "" {
			form = "application/json"
		}
		fmt.Fprintf(&b, "Content-Type: %s\r\nContent-Length: %d\r\n", form, len(r.body))
	}
	b.WriteString("\r\n" + r.body)
	return b.String()
}

// answer is the answer of the server; status 0 means none.
type answer struct {
	status int
	header http.Header
	body   string
}

func dial(t testing.TB, address, from string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(waitLimit)))
	return conn
}

// talk sends a text from an address of this machine, and reads answers until the connection ends. method is that of the requests.
func (w *world) talk(t testing.TB, address, from, method, text string) (answers []answer) {
	t.Helper()
	conn := dial(t, address, from)
	defer conn.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.WriteString(conn, text) // the server may stop reading after an early rejection
	}()
	in := bufio.NewReader(conn)
	for {
		response, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
				t.Errorf("neither an answer nor an end to %.100q", text)
			}
			break
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		a := answer{status: response.StatusCode, header: response.Header, body: string(body)}
		for _, secret := range []string{platformPassword, viewerToken, operatorToken, clientSecret, "goroutine ", "pq:", "SELECT ", ".go:"} {
			if strings.Contains(a.body, secret) || strings.Contains(fmt.Sprint(a.header), secret) {
				t.Errorf("the answer to %.100q has %q: %.300s", text, secret, a.body)
			}
		}
		answers = append(answers, a)
	}
	_ = conn.Close()
	<-sent
	return answers
}

// one sends one request and returns its answer.
func (w *world) one(address, from string, r request) answer {
	w.t.Helper()
	answers := w.talk(w.t, address, from, r.method, r.text(address, true))
	if len(answers) == 0 {
		return answer{}
	}
	return answers[0]
}
