package operatorapi_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/orchestrator/internal/dispatch"
	"github.com/kyma-project/keb/services/orchestrator/internal/operatorapi"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

func TestMain(m *testing.M) {
	code := pgtest.Run(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

const waitLimit = 20 * time.Second

// fakeSource is a database with the versions of operations, and a marker that increases with every change.
type fakeSource struct {
	mu       sync.Mutex
	versions map[string]int
	changed  map[string]int // by the marker at which it was changed
	now      int
	broken   error
	live     string
	marked   func() // called by Mark
}

func newSource() *fakeSource {
	return &fakeSource{versions: map[string]int{}, changed: map[string]int{}, now: 10, live: "[]"}
}

func marker(n int) store.Marker { return markerAt(n, time.Now()) }

func markerAt(n int, at time.Time) store.Marker {
	m, err := store.ParseMarker(fmt.Sprintf("%d.%d:%d:", at.UnixMilli(), n, n))
	if err != nil {
		panic(err)
	}
	return m
}

func number(m store.Marker) int {
	_, snapshot, _ := strings.Cut(m.String(), ".")
	n, _ := strconv.Atoi(strings.SplitN(snapshot, ":", 2)[0])
	return n
}

// change changes an operation without a notice.
func (f *fakeSource) change(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.versions[id]++
	f.changed[id] = f.now
	f.now++
}

func (f *fakeSource) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = err
}

func (f *fakeSource) Mark(context.Context) (store.Marker, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.marked != nil {
		f.marked()
	}
	return marker(f.now), f.broken
}

func (f *fakeSource) Changed(_ context.Context, since store.Marker, limit int) ([]store.Version, store.Marker, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if number(since) > f.now {
		return nil, since, store.ErrMarker
	}
	var found []store.Version
	for id, at := range f.changed {
		if at >= number(since) && len(found) < limit {
			found = append(found, store.Version{ID: id, Version: f.versions[id]})
		}
	}
	return found, marker(f.now), f.broken
}

func (f *fakeSource) Render(_ context.Context, ids []string) ([]operatorapi.Rendered, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return nil, f.broken
	}
	var out []operatorapi.Rendered
	for _, id := range ids {
		if v, ok := f.versions[id]; ok {
			out = append(out, operatorapi.Rendered{ID: id, Version: v, Data: []byte(id + "=" + strconv.Itoa(v))})
		}
	}
	return out, nil
}

func (f *fakeSource) Live() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return []byte(f.live)
}

type bundle struct {
	t      *testing.T
	nats   *testkit.NATSServer
	source *fakeSource
	cfg    operatorapi.HubConfig
	nc     *nats.Conn // of the last hub
}

func setup(t *testing.T) *bundle {
	t.Helper()
	return &bundle{t: t, nats: testkit.NATS(t), source: newSource(), cfg: operatorapi.HubConfig{
		Every: 5 * time.Millisecond, Reconcile: time.Hour, Buffer: 10, MaxClients: 3,
	}}
}

// hub starts another hub on the same database.
func (b *bundle) hub() (h *operatorapi.Hub, stop func()) {
	b.t.Helper()
	nc, err := nats.Connect(b.nats.URL())
	require.NoError(b.t, err)
	b.nc = nc
	h = operatorapi.NewHub(b.cfg, nc, b.source, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx, b.source) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
		nc.Close()
	})
	b.t.Cleanup(stop)
	return h, stop
}

func (b *bundle) join(h *operatorapi.Hub, only string) *operatorapi.Subscriber {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), waitLimit)
	defer cancel()
	c, err := h.Join(ctx, only)
	require.NoError(b.t, err)
	b.t.Cleanup(c.Leave)
	return c
}

// changeAndNotify changes operations and sends a notice.
func (b *bundle) changeAndNotify(h *operatorapi.Hub, ids ...string) {
	var transitions []dispatch.Transition
	for _, id := range ids {
		b.source.change(id)
		transitions = append(transitions, dispatch.Transition{OperationID: id})
	}
	h.Committed(transitions)
}

// next returns the next batch of a client, without markers.
func (b *bundle) next(c *operatorapi.Subscriber) operatorapi.News {
	b.t.Helper()
	timer := time.NewTimer(waitLimit)
	defer timer.Stop()
	for {
		select {
		case <-c.Ready():
			if batch := c.Take(); batch.Resync != "" || batch.Live != nil || len(batch.Operations) > 0 {
				return batch
			}
		case <-timer.C:
			b.t.Fatal("the client receives nothing")
		}
	}
}

func (b *bundle) want(c *operatorapi.Subscriber, want ...string) {
	b.t.Helper()
	var got []string
	for len(got) < len(want) {
		for _, data := range b.next(c).Operations {
			got = append(got, string(data))
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Errorf("operations (-want +got):\n%s", diff)
	}
}

// waitDelivered waits until all clients have received what one client received. The hub sends to one client after the other, and accepts no
// new client meanwhile.
func (b *bundle) waitDelivered(h *operatorapi.Hub) {
	b.t.Helper()
	b.join(h, "").Leave()
}

// waitUnsubscribed waits until the hub unsubscribes, after the last client has left.
func (b *bundle) waitUnsubscribed() {
	b.t.Helper()
	testkit.Eventually(b.t, waitLimit, "the hub unsubscribes", func() bool { return b.nc.NumSubscriptions() == 0 })
}

func TestHub_AnyOrchestratorChanges_ClientReceives(t *testing.T) {
	b := setup(t)
	one, _ := b.hub()
	two, _ := b.hub()
	c, other := b.join(one, ""), b.join(one, "b")
	b.changeAndNotify(one, "a")
	b.want(c, "a=1")
	b.changeAndNotify(two, "a", "b")
	b.want(c, "a=2", "b=1")
	b.want(other, "b=1")
}

func TestHub_LostNotice_ReconcileFindsChange(t *testing.T) {
	b := setup(t)
	b.cfg.Reconcile = 20 * time.Millisecond
	h, _ := b.hub()
	c := b.join(h, "")
	b.source.change("a")
	b.want(c, "a=1")
	b.source.change("a")
	b.source.change("b")
	b.want(c, "a=2", "b=1")
}

func TestHub_FailedRead_IsRetried(t *testing.T) {
	b := setup(t)
	h, _ := b.hub()
	c := b.join(h, "")
	b.source.set(errors.New("the database is unavailable"))
	b.changeAndNotify(h, "a")
	b.changeAndNotify(h, "b")
	b.source.set(nil)
	b.want(c, "a=1", "b=1")
}

func TestClient_Slow_GetsLastState(t *testing.T) {
	b := setup(t)
	h, _ := b.hub()
	slow, fast := b.join(h, ""), b.join(h, "")
	for i := range 50 {
		b.changeAndNotify(h, "a")
		b.want(fast, fmt.Sprintf("a=%d", i+1))
	}
	b.waitDelivered(h)
	batch := b.next(slow)
	if len(batch.Operations) != 1 || string(batch.Operations[0]) != "a=50" {
		t.Errorf("the slow client receives %q", batch.Operations)
	}
}

func TestClient_FullBuffer_Resyncs(t *testing.T) {
	b := setup(t)
	h, _ := b.hub()
	slow, fast := b.join(h, ""), b.join(h, "")
	var ids, want []string
	for i := range b.cfg.Buffer {
		ids = append(ids, fmt.Sprintf("op-%02d", i))
		want = append(want, ids[i]+"=1")
	}
	b.changeAndNotify(h, ids...)
	b.want(fast, want...)
	b.changeAndNotify(h, "one more")
	b.want(fast, "one more=1")
	b.waitDelivered(h)
	batch := b.next(slow)
	if !strings.Contains(batch.Resync, "10 changed operations") || len(batch.Operations) != 0 {
		t.Errorf("the slow client receives %q and %q", batch.Resync, batch.Operations)
	}
	b.changeAndNotify(h, "after")
	b.want(slow, "after=1")
}

func TestClient_Resume_GetsMissedChanges(t *testing.T) {
	b := setup(t)
	b.cfg.Reconcile = 20 * time.Millisecond
	h, _ := b.hub()
	c := b.join(h, "")
	b.changeAndNotify(h, "a")
	b.want(c, "a=1")
	last := ""
	testkit.Eventually(t, waitLimit, "the client receives a marker", func() bool {
		select {
		case <-c.Ready():
			if m := c.Take().Marker; m != "" {
				last = m
			}
		default:
		}
		return last != "" && number(mustParse(t, last)) == b.source.currentMarker()
	})
	c.Leave()
	b.waitUnsubscribed()
	b.changeAndNotify(h, "a", "b") // without listeners
	for _, r := range []struct {
		name   string
		since  store.Marker
		resync string
		want   []string
	}{
		{"a moment ago", mustParse(t, last), "", []string{"a=2", "b=1"}},
		{"long ago", markerAt(1, time.Now().Add(-time.Hour)), "the client was away for too long", nil},
		{"another database", marker(1000), "the database was replaced", nil},
	} {
		again := b.join(h, "")
		require.NoError(t, again.Resume(t.Context(), r.since, time.Now()))
		batch := b.next(again)
		var got []string
		for _, data := range batch.Operations {
			got = append(got, string(data))
		}
		slices.Sort(got)
		if batch.Resync != r.resync || !slices.Equal(got, r.want) {
			t.Errorf("%s: got %q and %q, want %q and %q", r.name, batch.Resync, got, r.resync, r.want)
		}
		again.Leave()
	}
	for i := range b.cfg.Buffer {
		b.source.change(strconv.Itoa(i))
	}
	again := b.join(h, "")
	require.NoError(t, again.Resume(t.Context(), mustParse(t, last), time.Now()))
	if batch := b.next(again); batch.Resync == "" {
		t.Error("a client that missed too much is not told to read again")
	}
}

func (f *fakeSource) currentMarker() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func mustParse(t *testing.T, text string) store.Marker {
	t.Helper()
	m, err := store.ParseMarker(text)
	require.NoError(t, err)
	return m
}

func TestHub_WorkersChange_ClientReceives(t *testing.T) {
	const alpha = `["alpha"]`
	for _, while := range []string{"joining", "being served"} {
		t.Run("changed while "+while, func(t *testing.T) {
			b := setup(t)
			if while == "joining" {
				b.source.marked = func() { b.source.live = alpha }
			}
			h, _ := b.hub()
			c := b.join(h, "a")
			b.source.mu.Lock()
			b.source.live = alpha
			b.source.mu.Unlock()
			if batch := b.next(c); string(batch.Live) != alpha {
				t.Errorf("got %q", batch.Live)
			}
		})
	}
}

func TestHub_TooManyClients_AreRejected(t *testing.T) {
	b := setup(t)
	h, stop := b.hub()
	var clients []*operatorapi.Subscriber
	for range b.cfg.MaxClients {
		clients = append(clients, b.join(h, ""))
	}
	if _, err := h.Join(t.Context(), ""); !errors.Is(err, operatorapi.ErrFull) {
		t.Errorf("error %v, want %v", err, operatorapi.ErrFull)
	}
	clients[0].Leave()
	b.join(h, "")
	stop()
	for _, c := range clients {
		select {
		case <-c.Stopped():
		default:
			t.Error("a client does not see that the hub has stopped")
		}
	}
	clients[1].Leave()
	if _, err := h.Join(t.Context(), ""); !errors.Is(err, operatorapi.ErrStopped) {
		t.Errorf("error %v, want %v", err, operatorapi.ErrStopped)
	}
}

func TestJoin_DatabaseUnavailable_Waits(t *testing.T) {
	b := setup(t)
	b.source.set(errors.New("the database is unavailable"))
	h, _ := b.hub()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := h.Join(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	b.source.set(nil)
	c := b.join(h, "")
	b.changeAndNotify(h, "a")
	b.want(c, "a=1")
}

func TestHub_NoClients_Unsubscribes(t *testing.T) {
	b := setup(t)
	b.cfg.Reconcile = time.Millisecond
	h, _ := b.hub()
	b.join(h, "").Leave()
	b.waitUnsubscribed()
}
