package liveness_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/orchestrator/internal/liveness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	grace   = 9 * time.Second
	timeout = 20 * time.Second
	// shortRound is the duration of a round in which no answer is expected.
	shortRound = 200 * time.Millisecond
)

type bundle struct {
	t     *testing.T
	nc    *nats.Conn
	clock *testkit.Clock
	l     *liveness.Liveness
}

func setup(t *testing.T) *bundle {
	t.Helper()
	nc, err := nats.Connect(testkit.NATS(t).URL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	b := &bundle{t: t, nc: nc, clock: testkit.NewClock(time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC))}
	b.l = liveness.New(liveness.Config{Every: time.Hour, Timeout: time.Hour, Grace: grace}, nc, b.clock.Now, slog.New(slog.DiscardHandler))
	return b
}

// service registers a service like the worker SDK; with nil metadata the service is not a worker.
func (b *bundle) service(metadata map[string]string) (stop func()) {
	b.t.Helper()
	s, err := micro.AddService(b.nc, micro.Config{Name: "keb-worker-test", Version: "1.0.0", Metadata: metadata})
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = s.Stop() })
	return func() {
		require.NoError(b.t, s.Stop())
	}
}

func replica(name, version, steps string) map[string]string {
	return map[string]string{worker.MetadataWorker: name, worker.MetadataVersion: version, worker.MetadataSteps: steps}
}

// round runs a short round.
func (b *bundle) round() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), shortRound)
	defer cancel()
	require.NoError(b.t, b.l.Round(ctx))
}

// roundUntil runs a round until ok returns true.
func (b *bundle) roundUntil(what string, ok func() bool) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.l.Round(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
	}()
	testkit.Eventually(b.t, timeout, what, ok)
}

// roundUntilServed runs a round until a worker serves a step.
func (b *bundle) roundUntilServed(name, step string) {
	b.t.Helper()
	b.roundUntil(name+" is known to serve "+step, func() bool { return b.l.Serves(name, step) })
}

// replicas returns the number of known replicas of a worker.
func (b *bundle) replicas(name string) int {
	for _, w := range b.l.Workers() {
		if w.Name == name {
			return w.Replicas
		}
	}
	return 0
}

func (b *bundle) want(want ...liveness.Worker) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.l.Workers()); diff != "" {
		b.t.Errorf("workers (-want +got):\n%s", diff)
	}
}

func TestLiveness_NewWorker_ServesItsSteps(t *testing.T) {
	b := setup(t)
	b.round()
	if len(b.l.Workers()) != 0 || b.l.Serves("alpha", "First") {
		t.Fatalf("workers are %+v, want none", b.l.Workers())
	}
	b.service(replica("beta", "2.0.0", ""))
	b.service(replica("alpha", "1.1.0", "First,Second"))
	b.service(replica("alpha", "1.0.0", "First"))
	b.service(nil)
	b.roundUntil("three have answered", func() bool { return b.replicas("alpha") == 2 && b.replicas("beta") == 1 })
	b.want(liveness.Worker{Name: "alpha", Versions: []string{"1.0.0", "1.1.0"}, ByVersion: map[string]int{"1.0.0": 1, "1.1.0": 1}, Replicas: 2, Steps: []string{"First", "Second"}},
		liveness.Worker{Name: "beta", Versions: []string{"2.0.0"}, ByVersion: map[string]int{"2.0.0": 1}, Replicas: 1})
	for _, c := range []struct {
		worker, step string
		want         bool
	}{{"alpha", "First", true}, {"alpha", "Second", true}, {"alpha", "Third", false}, {"beta", "First", false}, {"gamma", "First", false}} {
		if got := b.l.Serves(c.worker, c.step); got != c.want {
			t.Errorf("%s serves %s: %t, want %t", c.worker, c.step, got, c.want)
		}
	}
}

func TestLiveness_SilentWorker_IsRemovedAfterGrace(t *testing.T) {
	b := setup(t)
	stop := b.service(replica("alpha", "1.0.0", "First"))
	begin := b.clock.Now()
	b.roundUntilServed("alpha", "First")
	stop()
	b.clock.Advance(grace)
	b.round()
	if !b.l.Serves("alpha", "First") {
		t.Error("a worker that does not answer is removed before the end of the grace period")
	}
	b.clock.Advance(time.Nanosecond)
	b.round()
	if b.l.Serves("alpha", "First") || len(b.l.Workers()) != 0 {
		t.Errorf("workers after the grace period are %+v, want none", b.l.Workers())
	}
	if seen := b.l.Seen("alpha"); !seen.Equal(begin) {
		t.Errorf("last answer at %s, want %s", seen, begin)
	}
}

func TestLiveness_OneReplicaLeft_StepIsServed(t *testing.T) {
	b := setup(t)
	stop := b.service(replica("alpha", "1.0.0", "First"))
	b.service(replica("alpha", "1.1.0", "First"))
	b.roundUntil("two have answered", func() bool { return b.replicas("alpha") == 2 })
	stop()
	b.clock.Advance(2 * grace)
	b.roundUntil("one answers", func() bool { return b.l.Seen("alpha").Equal(b.clock.Now()) })
	b.want(liveness.Worker{Name: "alpha", Versions: []string{"1.1.0"}, ByVersion: map[string]int{"1.1.0": 1}, Replicas: 1, Steps: []string{"First"}})
}

func TestLiveness_InvalidAnswer_IsIgnored(t *testing.T) {
	b := setup(t)
	subject, err := micro.ControlSubject(micro.InfoVerb, "", "")
	require.NoError(t, err)
	sub, err := b.nc.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte("{")) })
	require.NoError(t, err)
	defer func() { _ = sub.Unsubscribe() }()
	b.service(replica("alpha", "1.0.0", "First"))
	b.roundUntilServed("alpha", "First")
	b.round() // in case the invalid answer arrives last
	b.want(liveness.Worker{Name: "alpha", Versions: []string{"1.0.0"}, ByVersion: map[string]int{"1.0.0": 1}, Replicas: 1, Steps: []string{"First"}})
}

func TestLiveness_NoConnection_KeepsWorkers(t *testing.T) {
	b := setup(t)
	b.service(replica("alpha", "1.0.0", "First"))
	b.roundUntilServed("alpha", "First")
	b.clock.Advance(2 * grace)
	b.nc.Close()
	if err := b.l.Round(t.Context()); err == nil {
		t.Error("a round without a connection returns no error")
	}
	if !b.l.Serves("alpha", "First") {
		t.Error("a worker is removed although it could not be asked")
	}
}

func TestLiveness_BusReturns_RestartsTheGracePeriod(t *testing.T) {
	b := setup(t)
	server := testkit.NATS(t)
	nc, err := nats.Connect(server.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	b.nc = nc
	b.l = liveness.New(liveness.Config{Every: time.Hour, Timeout: shortRound, Grace: grace}, nc, b.clock.Now, slog.New(slog.DiscardHandler))
	stop := b.service(replica("alpha", "1.0.0", "First"))
	testkit.Eventually(t, timeout, "the worker is known", func() bool {
		b.round()
		return b.l.Serves("alpha", "First")
	})
	stop()

	server.Shutdown()
	testkit.Eventually(t, timeout, "the connection is lost", func() bool { return !nc.IsConnected() })
	b.clock.Advance(2 * grace)
	if err := b.l.Round(t.Context()); !errors.Is(err, liveness.ErrNotConnected) {
		t.Errorf("a round without a connection: %v, want %v", err, liveness.ErrNotConnected)
	}
	if _, err := b.l.Taken(t.Context()); !errors.Is(err, liveness.ErrNotConnected) {
		t.Errorf("Taken without a connection: %v, want %v", err, liveness.ErrNotConnected)
	}
	if !b.l.Serves("alpha", "First") {
		t.Error("a worker is removed while the bus is unavailable")
	}

	server.Restart(t)
	testkit.Eventually(t, timeout, "the connection is restored", nc.IsConnected)
	b.round()
	b.clock.Advance(grace)
	b.round()
	if taken, err := b.l.Taken(t.Context()); err != nil || !b.l.Serves("alpha", "First") || !taken.Silent["alpha"] {
		t.Errorf("the grace period does not start again after the reconnect: silent %v, error %v", taken.Silent, err)
	}
	b.clock.Advance(time.Nanosecond)
	b.round()
	if b.l.Serves("alpha", "First") {
		t.Error("the worker is still known after the grace period")
	}
}

func TestRun_Start_AsksAtOnceAndEndsWithContext(t *testing.T) {
	b := setup(t)
	b.service(replica("alpha", "1.0.0", "First"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.l.Run(ctx) }()
	testkit.Eventually(t, timeout, "the worker is known", func() bool { return b.l.Serves("alpha", "First") })
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run ended with %v", err)
	}
}

func TestLiveness_LateAnswer_Counts(t *testing.T) {
	b := setup(t)
	asked := make(chan *nats.Msg, 10)
	sub, err := b.nc.Subscribe("$SRV.INFO", func(m *nats.Msg) { asked <- m })
	require.NoError(t, err)
	b.round()
	if b.l.Serves("alpha", "First") {
		t.Fatal("a worker that has not answered is alive")
	}
	require.NoError(t, sub.Unsubscribe())
	late := []byte(`{"id":"x","name":"keb-worker-alpha","metadata":{"worker":"alpha","version":"1","steps":"First"}}`)
	require.NoError(t, (<-asked).Respond(late))
	b.roundUntilServed("alpha", "First") // with the late answer to the first round
}
