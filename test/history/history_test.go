//go:build linux

package history_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/history"
	"github.com/kyma-project/keb/test/internal/harness"
	"github.com/kyma-project/keb/test/internal/installation"
)

const (
	seedVariable = "KEB_HISTORY_SEED"
	// savedVariable is a saved history, which is checked in place of a new one.
	savedVariable = "KEB_HISTORY_SAVED"
	// outage is the duration of an outage, calm the time between two faults.
	outage = 8 * time.Second
	calm   = 6 * time.Second
	// searchLimit is the time for the search of one instance.
	searchLimit = time.Minute
	// endLimit is the time limit for all clients to complete their last request.
	endLimit = 4 * time.Minute
)

// faults are the faults of a run; their order comes from the seed.
func faults(w *installation.World) map[string]func() {
	return map[string]func(){
		"orchestrators killed":           func() { w.Killed(0, "orchestrator-") },
		"brokers killed":                 func() { w.Killed(0, "broker-") },
		"a broker killed":                func() { w.Killed(2*time.Second, "broker-1") },
		"workers killed":                 func() { w.Killed(2*time.Second, "worker-") },
		"NATS killed":                    func() { w.Killed(0, installation.ToNATS) },
		"NATS away":                      func() { w.Killed(outage, installation.ToNATS) },
		"Postgres killed":                func() { w.KillPostgres(0) },
		"Postgres away":                  func() { w.KillPostgres(outage) },
		"brokers cut from Postgres":      func() { w.Cut(outage, "broker", installation.ToPostgres) },
		"brokers cut from NATS":          func() { w.Cut(outage, "broker", installation.ToNATS) },
		"orchestrators cut from NATS":    func() { w.Cut(outage, "orchestrator", installation.ToNATS) },
		"workers cut from external ones": func() { w.Cut(outage, "worker", installation.ToLandscape) },
	}
}

func TestHistory(t *testing.T) {
	testkit.Suite(t, "history")
	if path := os.Getenv(savedVariable); path != "" {
		file, err := os.Open(path)
		require.NoError(t, err)
		records, err := history.Read(file)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		judge(t, path, records)
		return
	}
	seed := testkit.Number(t, seedVariable, uint64(time.Now().UnixNano()%1_000_000), 0)
	t.Logf("%s=%d", seedVariable, seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	w := installation.New(t, installation.Config{Name: "history"})
	liar := &liar{inner: &http.Transport{MaxIdleConnsPerHost: clients}}
	before := w.Sys.Created()
	all := faults(w)
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	rnd.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	t.Run("faults", func(t *testing.T) {
		w.T = t
		c, orders := record(w, liar, rnd, func() {
			for _, name := range names {
				w.Pass(calm)
				start := time.Now()
				all[name]()
				t.Logf("%s for %.1f s", name, time.Since(start).Seconds())
			}
			w.Pass(calm)
		})
		records := append(c.records, ledger(w, orders, before)...)
		path := filepath.Join(os.TempDir(), fmt.Sprintf("keb-history-%d.jsonl", seed)) //nolint:usetesting // it stays, to be checked again
		var lines bytes.Buffer
		require.NoError(t, history.Write(&lines, records))
		require.NoError(t, os.WriteFile(path, lines.Bytes(), 0o600))
		fmt.Printf("\n%s=%d %s=%s faults: %s\n", seedVariable, seed, savedVariable, path, strings.Join(names, ", "))
		judge(t, path, records)
	})
	t.Run("planted", func(t *testing.T) {
		w.T = t
		lies := []*lie{
			{what: "an update is answered 202 and not forwarded", method: http.MethodPatch, status: 202, body: `{"operation":"` + uuid.NewString() + `"}`, rule: history.Final},
			{what: "an update is answered 200 and not forwarded", method: http.MethodPatch, status: 200, body: `{}`, rule: history.Linearizable},
			{
				what: "a binding is answered 201 and not forwarded", method: http.MethodPut, part: "/service_bindings/", status: 201,
				body: `{"credentials":{"kubeconfig":"none"}}`, rule: history.Exists,
			},
		}
		// A lie can be true by chance, so each one is told about two instances, and one of them must be found.
		for _, l := range slices.Clone(lies) {
			lies = append(lies, new(*l))
		}
		c, _ := record(w, liar, rnd, func() {
			liar.tell(lies)
			w.Await("all lies to be told", func() bool { w.Pass(0); return liar.told.Load() == int64(len(lies)) })
			w.Pass(calm)
		})
		verdict := history.Check(c.records, searchLimit)
		found := map[string]bool{}
		for _, l := range lies {
			i := slices.IndexFunc(verdict.Violations, func(v history.Violation) bool { return v.Rule == l.rule && strings.Contains(l.path, v.Instance) })
			if i >= 0 {
				found[l.what] = true
				fmt.Printf("planted: %s\n  found: %s\n", l.what, verdict.Violations[i])
			}
		}
		for _, l := range lies {
			if !found[l.what] {
				t.Errorf("%s (%s): the checker accepts it", l.what, l.path)
			}
		}
		for _, v := range verdict.Violations {
			if !slices.ContainsFunc(lies, func(l *lie) bool { return strings.Contains(l.path, v.Instance) }) {
				t.Errorf("not planted: %s", v)
			}
		}
	})
}

// record lets the clients invoke requests during do, and until all operations have ended. It returns all orders.
func record(w *installation.World, transport http.RoundTripper, rnd *rand.Rand, do func()) (*recorder, []*harness.Order) {
	w.T.Helper()
	w.Ready()
	c := &recorder{start: time.Now(), client: w.Client(transport)}
	ctx, cancel := context.WithCancel(w.T.Context())
	defer cancel()
	more, noMore := context.WithCancel(ctx)
	defer noMore()
	var places []*slot
	for range slots {
		s := &slot{}
		s.renew(nil, value(rnd))
		places = append(places, s)
	}
	var running sync.WaitGroup
	var active atomic.Int64
	for n := range clients {
		k := &client{recorder: c, n: n, rnd: rand.New(rand.NewPCG(rnd.Uint64(), uint64(n))), slot: places[n%slots]}
		active.Add(1)
		running.Go(func() {
			defer active.Add(-1)
			k.run(ctx, more)
		})
	}
	do()
	noMore()
	until := time.Now().Add(endLimit)
	for active.Load() > 0 || !w.OperationsEnded() {
		if time.Now().After(until) {
			w.T.Errorf("%d clients have not completed their last request within %s", active.Load(), endLimit)
			break
		}
		w.Pass(200 * time.Millisecond)
	}
	cancel()
	running.Wait()
	w.Ready()
	var orders []*harness.Order
	last := &client{recorder: c, n: clients}
	for _, s := range places {
		for _, o := range s.all {
			orders = append(orders, o)
			w.Await("a last read of instance "+o.InstanceID, func() bool {
				w.Pass(0)
				r := last.get(w.T.Context(), o.InstanceID)
				return r.Status == http.StatusOK || r.Status == http.StatusNotFound
			})
		}
	}
	return c, orders
}

// ledger reads what the external systems, the database and the bus have.
func ledger(w *installation.World, orders []*harness.Order, before map[string]int) (records []*history.Record) {
	w.T.Helper()
	complete := installation.Footprint("azure")
	created := w.Sys.Created()
	for key := range created {
		created[key] -= before[key]
	}
	records = append(records, &history.Record{Kind: history.Complete, Objects: complete}, &history.Record{Kind: history.Created, Objects: created})
	for i, found := range w.Sys.Footprints(orders) {
		records = append(records, &history.Record{Kind: history.Holds, Instance: orders[i].InstanceID, Objects: found.WithoutAccount()})
	}
	return append(records, history.Events(w.T, w.DB, w.JS)...)
}

// judge prints the figures and the verdict of a history.
func judge(t *testing.T, path string, records []*history.Record) {
	t.Helper()
	v := history.Check(records, searchLimit)
	table(os.Stdout, records, v)
	for _, violation := range v.Violations {
		t.Error(violation)
	}
	if v.Accepted == 0 || v.Bindings == 0 || v.Facts == 0 || v.Ledger == 0 {
		t.Errorf("%s: the history has nothing to check", path)
	}
}

func table(out io.Writer, records []*history.Record, v *history.Verdict) {
	counts := map[history.Kind]map[history.Outcome]int{}
	for _, r := range records {
		if counts[r.Kind] == nil {
			counts[r.Kind] = map[history.Outcome]int{}
		}
		counts[r.Kind][r.Outcome]++
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "INVOCATION\tOK\tFAILED\tUNKNOWN")
	for _, kind := range []history.Kind{
		history.Provision, history.Update, history.Deprovision, history.Get, history.Poll, history.Bind, history.GetBinding, history.Unbind,
	} {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\n", kind, counts[kind][history.OK], counts[kind][history.Failed], counts[kind][history.Unknown])
	}
	_ = w.Flush() // to a terminal
	fmt.Fprintf(out, "instances %d, accepted %d, final %d, bindings checked %d, transitions %d with %d facts, instances in the ledger %d, doubled %d, "+
		"missing %d, violations %d, checked in %s\n", v.Instances, v.Accepted, v.Final, v.Bindings, v.Transitions, v.Facts, v.Ledger, v.Doubled, v.Missing,
		len(v.Violations), v.Took.Round(time.Millisecond))
}

// lie is an answer to one request that is not forwarded.
type lie struct {
	what, method, part string
	status             int
	body               string
	rule               history.Rule
	path               string // of the request
}

// liar is a proxy between clients and brokers that tells each lie once.
type liar struct {
	inner http.RoundTripper
	told  atomic.Int64
	mu    sync.Mutex
	lies  []*lie
}

func (l *liar) tell(lies []*lie) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lies = lies
}

func (l *liar) RoundTrip(r *http.Request) (*http.Response, error) {
	if planted := l.choose(r); planted != nil {
		l.told.Add(1)
		return &http.Response{
			StatusCode: planted.status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(planted.body)), Request: r,
		}, nil
	}
	return l.inner.RoundTrip(r)
}

// choose returns the lie to tell; nil to forward the request.
func (l *liar) choose(r *http.Request) *lie {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, planted := range l.lies {
		// Each lie is told about another instance.
		isTold := slices.ContainsFunc(l.lies, func(o *lie) bool { return o.path != "" && strings.HasPrefix(r.URL.Path, o.path) })
		if planted.path == "" && !isTold && r.Method == planted.method && strings.Contains(r.URL.Path, planted.part) {
			planted.path = strings.SplitAfterN(r.URL.Path, "/service_bindings", 2)[0]
			planted.path = strings.TrimSuffix(planted.path, "/service_bindings")
			return planted
		}
	}
	return nil
}
