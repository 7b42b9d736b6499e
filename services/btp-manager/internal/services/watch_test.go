package services_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-project/keb/services/btp-manager/internal/services"
)

// watched is a running Watch.
type watched struct {
	*bundle
	calls, logs atomic.Int64
}

// startWatch runs Watch until the test ends, and then waits for its goroutines.
func startWatch(t *testing.T, b *bundle) *watched {
	t.Helper()
	w := &watched{bundle: b}
	if _, err := b.services.Count(t.Context()); err != nil && b.requests.quiet() {
		t.Fatal(err)
	}
	before := goleak.IgnoreCurrent()
	s := b.with(b.client, services.Config{WatchRetry: 200 * time.Millisecond})
	ctx, cancel := context.WithCancel(log.IntoContext(context.WithoutCancel(t.Context()), funcr.New(func(_, args string) {
		w.logs.Add(1)
		t.Log(args)
	}, funcr.Options{})))
	ended := make(chan error, 1)
	go func() { ended <- s.Watch(ctx, func() { w.calls.Add(1) }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("watch: %v", err)
		}
		goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("net/http/internal/http2.(*ClientConn).readLoop"))
	})
	return w
}

// quiet reports whether no request is answered in place of the server.
func (r *recorder) quiet() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fault == nil
}

// calledBy performs an action and waits for the resulting call of changed.
func (w *watched) calledBy(what string, do func()) {
	w.t.Helper()
	before := w.calls.Load()
	do()
	w.eventually("a call after "+what, func() bool { return w.calls.Load() > before })
}

// started waits until both kinds are watched.
func (w *watched) started() {
	w.t.Helper()
	w.eventually("the start of the watch", func() bool { return w.calls.Load() >= 2 })
}

func TestWatch_CreationAndDeletion_ReportsChange(t *testing.T) {
	b := setup(t, instance, binding)
	ns := b.namespace()
	w := startWatch(t, b)
	w.started()
	for _, kind := range []string{instance, binding} {
		w.calledBy("the creation of a "+kind, func() { b.order(kind, ns, "one", held) })
	}

	// Changed objects, and those that wait for their finalizers, still exist.
	before := w.calls.Load()
	for _, kind := range []string{instance, binding} {
		require.NoError(t, b.admin.Delete(t.Context(), object(kind, ns, "one")))
	}
	b.release(t.Context(), instance, ns, "one")
	w.eventually("a call after a deletion", func() bool { return w.calls.Load() > before })
	w.calledBy("the deletion of the other", func() { b.release(t.Context(), binding, ns, "one") })
	if n := w.calls.Load() - before; n != 2 {
		t.Errorf("%d calls for two deletions", n)
	}
}

func TestWatch_KindsVanish_Continues(t *testing.T) {
	b := setup(t)
	w := startWatch(t, b)
	for range 2 {
		for _, kind := range []string{instance, binding} {
			w.calledBy("the arrival of the "+kind, func() { b.install(kind) })
		}
		ns := b.namespace()
		w.calledBy("a creation", func() { b.order(instance, ns, "db") })
		w.calledBy("a deletion", func() {
			require.NoError(t, b.admin.Delete(t.Context(), object(instance, ns, "db")))
		})
		for _, kind := range []string{instance, binding} {
			w.calledBy("the removal of the "+kind, func() { b.uninstall(kind) })
		}
	}
	if n := w.logs.Load(); n != 0 {
		t.Errorf("%d lines are logged about kinds that come and go", n)
	}
}

func TestWatch_Interruption_ReportsChange(t *testing.T) {
	b := setup(t, instance, binding)
	ns := b.namespace()
	b.order(instance, ns, "db")
	var tries atomic.Int64
	b.requests.reset(func(r *http.Request) (*http.Response, error) {
		if strings.Contains(r.URL.Path, "/apis/services.cloud.sap.com/v1/service") {
			tries.Add(1)
			return nil, errors.New("connection lost")
		}
		return nil, nil
	})
	w := startWatch(t, b)
	w.eventually("some tries of both", func() bool { return tries.Load() >= 8 && w.logs.Load() >= 2 })
	if calls, logs := w.calls.Load(), w.logs.Load(); calls != 0 || logs != 2 {
		t.Errorf("%d calls and %d lines of log, want no call and one line for each kind", calls, logs)
	}
	require.NoError(t, b.admin.Delete(t.Context(), object(instance, ns, "db"), client.PropagationPolicy("Background")))

	w.calledBy("the return of the API", func() { b.requests.reset(nil) })
}
