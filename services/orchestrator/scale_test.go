package orchestrator_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/orchestrator"
)

// Load of the measurement.
const (
	scaleOperations = 100_000
	scaleSeconds    = 30
	// scaleRate is the number of operations that start per second. Each has five results and changes six times.
	scaleRate  = 90
	scaleFast  = 14
	scaleSlow  = 4
	scaleStall = 2
)

// populate stores operations in all states: 40% have ended; the others wait for a retry, for a worker or for another operation, or are
// executing.
func (s *system) populate(n int) {
	s.t.Helper()
	var hash string
	require.NoError(s.t, s.db.Get(&hash, `SELECT hash FROM orchestrator.definitions WHERE operation_type = 'provision'`))
	for _, query := range []string{`
INSERT INTO orchestrator.operations (id, type, instance_id, plan, created_at, state, version, cursor, stage, step, stage_attempt, step_attempt,
    dispatch, stage_memory, started_at, finished_at, deadline, due_at, execute_before, first_tried_at, sent_at, message, error, details)
SELECT gen_random_uuid(), 'provision', CASE WHEN state = 'pending' THEN 'old-' || n - 1 ELSE 'old-' || n END,
    (ARRAY['azure', 'aws', 'gcp', 'trial'])[1 + n % 4], at, state, 9, 20, 1, n % 3, 1, CASE WHEN state = 'in progress' THEN 1 ELSE 0 END,
    CASE WHEN flying THEN 1 ELSE 0 END, false, CASE WHEN state <> 'pending' THEN at END,
    CASE WHEN state IN ('succeeded', 'failed', 'cancelled') THEN at + interval '5 minutes' END, now() + interval '2 days',
    CASE WHEN state = 'in progress' AND NOT flying THEN now() + interval '1 day' END, CASE WHEN flying THEN now() + interval '1 day' END,
    CASE WHEN state = 'in progress' THEN at END, CASE WHEN state = 'in progress' THEN at END, 'still creating',
    CASE WHEN state = 'failed' THEN '{"component": "ext", "message": "ext is broken", "reason": "broken"}'::jsonb END,
    '{"provisioner": {"runtimeId": "6f2fbf0a-1b1b-4b1b-8b1b-123456789012"}}'
FROM (SELECT n, now() - n * interval '1 second' AS at, n % 10 = 6 AS flying, CASE
        WHEN n % 1000 = 1 THEN 'cancelled' WHEN n % 10 = 1 THEN 'failed' WHEN n % 10 IN (2, 3, 4) THEN 'succeeded' WHEN n % 10 = 7 THEN 'pending'
        ELSE 'in progress' END AS state
    FROM generate_series(1, $1::int) AS n) v WHERE $2 <> ''`, `
INSERT INTO orchestrator.instances (instance_id, running, waiting)
SELECT o.instance_id, (array_agg(o.id) FILTER (WHERE o.state = 'in progress'))[1], count(*) FILTER (WHERE o.state = 'pending')
FROM orchestrator.operations o WHERE $1::int > 0 AND $2 <> '' GROUP BY o.instance_id`, `
INSERT INTO orchestrator.requests (operation_id, body, definition)
SELECT o.id, jsonb_build_object('id', o.id, 'type', o.type, 'instanceId', o.instance_id, 'plan', jsonb_build_object('id', o.plan, 'name', o.plan),
    'context', jsonb_build_object('globalAccountId', 'ga-' || o.arrived % 50, 'subaccountId', 'sa-' || o.arrived),
    'runtime', jsonb_build_object('name', 'demo', 'shootName', 'c-' || o.arrived, 'shootDomain', 'c-1.example.com', 'provider', 'azure', 'region', 'westeurope'),
    'parameters', jsonb_build_object('name', 'demo', 'machineType', 'Standard_D8_v3', 'autoScalerMax', 10)), $2
FROM orchestrator.operations o WHERE $1::int > 0`, `
INSERT INTO orchestrator.history (operation_id, cursor, stage, step, stage_attempt, step_attempt, started_at, finished_at, kind)
SELECT o.id, c, 1, 0, 1, 1, o.created_at, o.created_at, 'succeeded' FROM orchestrator.operations o, generate_series(1, 5) AS c
WHERE $1::int > 0 AND $2 <> ''`} {
		_, err := s.db.Exec(query, n, hash)
		require.NoError(s.t, err)
	}
	_, err := s.db.Exec(`VACUUM ANALYZE orchestrator.operations, orchestrator.instances, orchestrator.requests, orchestrator.history`)
	require.NoError(s.t, err)
}

// watcher is a client of the stream that stores the received states, and reads again after a resync.
type watcher struct {
	name     string
	t        *testing.T
	base     string
	since    time.Time
	throttle func() // before each read

	mu      sync.Mutex
	cursors map[string]int64
	events  int
	resyncs int
}

// run listens until ctx ends, and reconnects when the stream ends.
func (w *watcher) run(ctx context.Context) error {
	last := ""
	for ctx.Err() == nil {
		id, err := w.listen(ctx, last)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("client %s: %w", w.name, err)
		}
		last = id
	}
	return nil
}

func (w *watcher) listen(ctx context.Context, last string) (id string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+"/stream", nil)
	if err != nil {
		return last, err
	}
	if id = last; last != "" {
		request.Header.Set("Last-Event-ID", last)
	}
	// Small buffers, because otherwise the kernel reads for a slow client.
	dialer := &net.Dialer{}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, addr)
		if tcp, ok := conn.(*net.TCPConn); ok && w.throttle != nil {
			err = tcp.SetReadBuffer(32 << 10)
		}
		return conn, err
	}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return id, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		return id, fmt.Errorf("%s: %s", response.Status, text)
	}
	lines := bufio.NewReaderSize(response.Body, 4<<10)
	name := ""
	for {
		if w.throttle != nil {
			w.throttle()
		}
		line, err := lines.ReadString('\n')
		if err != nil {
			return id, nil // the server ended the stream
		}
		line = strings.TrimSuffix(line, "\n")
		switch key, value, _ := strings.Cut(line, ": "); key {
		case "event":
			name = value
		case "id":
			id = value
		case "data":
			if err := w.see(ctx, name, value); err != nil {
				return id, err
			}
		}
	}
}

func (w *watcher) see(ctx context.Context, name, data string) error {
	switch name {
	case "operation":
		var op struct {
			ID     string
			Cursor int64
		}
		if err := json.Unmarshal([]byte(data), &op); err != nil {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events++
		w.cursors[op.ID] = op.Cursor
	case "resync":
		w.mu.Lock()
		w.resyncs++
		w.mu.Unlock()
		return w.readAgain(ctx)
	}
	return nil
}

// readAgain reads all operations since the start of the load, page by page.
func (w *watcher) readAgain(ctx context.Context) error {
	next := ""
	for {
		query := url.Values{"since": {w.since.Format(time.RFC3339)}, "page_size": {"1000"}}
		if next != "" {
			query.Set("cursor", next)
		}
		var page struct {
			Data []struct {
				ID     string
				Cursor int64
			}
			NextCursor string
		}
		if err := read(ctx, w.base+"/operations?"+query.Encode(), &page); err != nil {
			return err
		}
		w.mu.Lock()
		for _, op := range page.Data {
			w.cursors[op.ID] = op.Cursor
		}
		w.mu.Unlock()
		if next = page.NextCursor; next == "" {
			return nil
		}
	}
}

func read(ctx context.Context, address string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		return fmt.Errorf("GET %s: %s: %s", address, response.Status, text)
	}
	if into == nil {
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}
	return json.NewDecoder(response.Body).Decode(into)
}

// missed counts the operations whose last state a client does not have.
func (w *watcher) missed(last map[string]int64) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for id, cursor := range last {
		if w.cursors[id] != cursor {
			n++
		}
	}
	return n
}

// served starts another orchestrator behind a server like that of the command, and returns the address.
func (s *system) served() string {
	s.t.Helper()
	b := testkit.Bus(s.t, s.nats.URL())
	o, err := orchestrator.New(s.t.Context(), s.cfg, orchestrator.Deps{
		Bus: b, Memory: stagemem.New(b.JetStream(), s.keys), Log: s.log,
	})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = o.Close() })
	ln, err := service.Listen("127.0.0.1:0")
	require.NoError(s.t, err)
	start(s.t, "orchestrator", o.Run)
	start(s.t, "operator api", func(ctx context.Context) error { return service.ServeHTTP(ctx, ln, o.Handler()) })
	return "http://" + ln.Addr().String()
}

func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// TestOperatorAPI_Scale measures the requests of the console with very many operations while hundreds of them change per second, and
// checks that no client misses a change. make bench SCENARIO=api runs it.
func TestOperatorAPI_Scale(t *testing.T) {
	if os.Getenv("KEB_SCALE") == "" {
		t.Skip("make bench SCENARIO=api runs this test: it takes minutes and measures time")
	}
	s := newSystem(t)
	s.log = slog.New(slog.DiscardHandler)
	s.cfg.SweepEvery = time.Second
	addresses := []string{s.served(), s.served()} // both orchestrators make changes
	s.populate(scaleOperations)
	s.worker("alpha")
	s.worker("beta")
	begin := time.Now().UTC().Truncate(time.Second)
	var sample struct{ ID, InstanceID string }
	require.NoError(t, s.db.QueryRow(`SELECT id, instance_id FROM orchestrator.operations WHERE state = 'failed' ORDER BY created_at LIMIT 1`).Scan(&sample.ID, &sample.InstanceID))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var loaded atomic.Bool
	var watchers []*watcher
	var listening sync.WaitGroup
	errs := make(chan error, scaleFast+scaleSlow+scaleStall)
	for i := range scaleFast + scaleSlow + scaleStall {
		w := &watcher{t: t, base: addresses[i%2], since: begin, cursors: map[string]int64{}}
		switch {
		case i < scaleFast:
			w.name = fmt.Sprintf("fast %d", i)
		case i < scaleFast+scaleSlow: // about 150 events per second
			w.name = fmt.Sprintf("slow %d", i)
			w.throttle = pauses(2 * time.Millisecond)
		default: // stops repeatedly until the load has ended
			w.name = fmt.Sprintf("stalling %d", i)
			w.throttle = stalls(8*time.Second, 2*time.Second, &loaded)
		}
		watchers = append(watchers, w)
		listening.Go(func() { errs <- w.run(ctx) })
	}
	stop := func() {
		cancel()
		listening.Wait()
		close(errs)
		for err := range errs {
			if err != nil {
				t.Error(err)
			}
		}
	}
	before := heap()

	// The load consists of requests, commands and results.
	var loading sync.WaitGroup
	began := time.Now()
	var requested atomic.Int64
	loading.Go(func() {
		tick := time.NewTicker(time.Second / 10)
		defer tick.Stop()
		end := time.Now().Add(scaleSeconds * time.Second)
		for time.Now().Before(end) {
			<-tick.C
			batch := make([]event.Operation, scaleRate/10)
			for i := range batch {
				n := requested.Add(1)
				batch[i] = operation(event.Provision, fmt.Sprintf("new-%d", n), "azure")
			}
			s.request(batch...)
		}
	})
	figures := latencies(t, addresses[0], scaleSeconds*time.Second, map[string]string{
		"no filter": "/operations", "state=failed": "/operations?state=failed", "state=cancelled": "/operations?state=cancelled",
		"state=pending,in progress": "/operations?state=pending,in+progress", "type": "/operations?type=provision", "plan": "/operations?plan=trial",
		"q=operation": "/operations?q=" + sample.ID[:8], "q=instance": "/operations?q=" + sample.InstanceID, "q=old-": "/operations?q=old-",
		"q=subaccount": "/operations?q=sa-77777", "q=nothing": "/operations?q=nothing-at-all",
		"step": "/operations?step=Second", "worker": "/operations?worker=alpha", "step of no operation": "/operations?step=Last",
		"waiting=polling": "/operations?waiting=polling", "waiting=failing": "/operations?waiting=failing", "waiting=no_worker": "/operations?waiting=no_worker", "waiting=executing": "/operations?waiting=executing",
		"waiting=instance_busy": "/operations?waiting=instance_busy", "waiting=admission": "/operations?waiting=admission",
		"since": "/operations?since=" + begin.Format(time.RFC3339), "until": "/operations?until=" + begin.Add(-20*time.Hour).Format(time.RFC3339),
		"/operations/{id}": "/operations/" + sample.ID,
		"/overview":        "/overview", "/stuck": "/stuck", "/errors": "/errors", "finished_since": "/operations?state=failed&finished_since=" + begin.Add(-24*time.Hour).Format(time.RFC3339), "/workers": "/workers", "/throughput": "/throughput",
	})
	loading.Wait()
	var made int64
	last := map[string]int64{}
	testkit.Eventually(t, 2*time.Minute, "the load has ended", func() bool {
		var left int
		require.NoError(t, s.db.Get(&left, `SELECT count(*) FROM orchestrator.operations WHERE instance_id LIKE 'new-%' AND state <> 'succeeded'`))
		var all int64
		require.NoError(t, s.db.Get(&all, `SELECT count(*) FROM orchestrator.operations WHERE instance_id LIKE 'new-%'`))
		return left == 0 && all == requested.Load()
	})
	rows, err := s.db.Query(`SELECT id::text, cursor, version + 1 FROM orchestrator.operations WHERE instance_id LIKE 'new-%'`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var id string
		var cursor, changes int64
		require.NoError(t, rows.Scan(&id, &cursor, &changes))
		last[id] = cursor
		made += changes
	}
	loaded.Store(true)
	caughtUp := map[string]time.Duration{}
	done := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for len(caughtUp) < len(watchers) && time.Since(done) < 3*time.Minute {
		<-tick.C
		for _, w := range watchers {
			if _, known := caughtUp[w.name]; !known && w.missed(last) == 0 {
				caughtUp[w.name] = time.Since(done)
			}
		}
	}
	after := heap()
	stop()
	took := done.Sub(began).Seconds()
	t.Logf("operations: %d in the table, %d through the load; %d changes in %.1f s, %.0f per second", scaleOperations, len(last), made, took, float64(made)/took)
	for _, w := range watchers {
		missed := w.missed(last)
		t.Logf("client %-12s events %6d, told to read again %2d times, missed %d, up to date %.1f s after the load",
			w.name, w.events, w.resyncs, missed, caughtUp[w.name].Seconds())
		if missed > 0 {
			t.Errorf("client %s lacks the last state of %d operations", w.name, missed)
		}
	}
	t.Logf("heap: %.1f MiB before, %.1f MiB after the load, with the clients of the test", before, after)
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		t.Logf("%-28s %s", name, figures[name])
	}
}

func pauses(d time.Duration) func() {
	tick := time.NewTicker(d)
	return func() { <-tick.C }
}

// stalls makes a reader alternately read and stop.
func stalls(still, moving time.Duration, over *atomic.Bool) func() {
	until := time.Now().Add(moving)
	return func() {
		if over.Load() || time.Now().Before(until) {
			return
		}
		timer := time.NewTimer(still)
		<-timer.C
		until = time.Now().Add(moving)
	}
}

// latencies sends all requests in turn for a period, and returns their durations.
func latencies(t *testing.T, base string, during time.Duration, paths map[string]string) map[string]string {
	t.Helper()
	taken := map[string][]time.Duration{}
	end := time.Now().Add(during)
	for time.Now().Before(end) {
		for _, name := range slices.Sorted(maps.Keys(paths)) {
			begin := time.Now()
			if err := read(t.Context(), base+paths[name], nil); err != nil {
				t.Error(err)
			}
			taken[name] = append(taken[name], time.Since(begin))
		}
	}
	out := map[string]string{}
	for name, all := range taken {
		slices.Sort(all)
		out[name] = fmt.Sprintf("n %3d  p50 %6.1f ms  p99 %6.1f ms  max %6.1f ms", len(all), ms(all[len(all)/2]), ms(all[len(all)*99/100]), ms(all[len(all)-1]))
	}
	return out
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
