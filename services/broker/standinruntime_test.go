package broker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

// runtimes simulates the worker runtime: it creates and removes accesses, and returns the addresses of clusters.
type runtimes struct {
	t   testing.TB
	bus *bus.Bus

	mu sync.Mutex
	// access holds the existing accesses by "<instance>/<binding>"; made and asked are counters.
	access map[string]event.BindRequest
	made   map[string]int
	tokens int
	// token is the prefix of all tokens.
	token string
	// failing makes it reject requests, lost makes it drop the answers, and held makes it wait.
	failing, lost bool
	held          chan struct{}

	stop func()
}

func newRuntimes(b *bench) *runtimes {
	b.t.Helper()
	r := &runtimes{
		t: b.t, bus: testkit.Connect(b.t, b.nats.URL()), access: make(map[string]event.BindRequest), made: make(map[string]int), token: canary,
	}
	r.start()
	b.t.Cleanup(func() { r.stop() })
	return r
}

func (r *runtimes) start() {
	var stops []func()
	for subject, handle := range map[string]func(context.Context, []byte) (any, error){
		event.AskBind: r.bind, event.AskUnbind: r.unbind, event.AskCluster: r.cluster,
	} {
		stop, err := r.bus.Answer(subject, "worker-runtime", handle)
		require.NoError(r.t, err)
		stops = append(stops, stop)
	}
	require.NoError(r.t, r.bus.NATS().Flush())
	r.stop = func() {
		for _, stop := range stops {
			stop()
		}
		r.stop = func() {}
	}
}

func (r *runtimes) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// hold blocks answers until release is called.
func (r *runtimes) hold() (release func()) {
	held := make(chan struct{})
	r.set(func() { r.held = held })
	return sync.OnceFunc(func() {
		r.set(func() { r.held = nil })
		close(held)
	})
}

func (r *runtimes) begin(ctx context.Context) (lost bool, err error) {
	r.mu.Lock()
	held, lost, failing := r.held, r.lost, r.failing
	r.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	if failing {
		return false, errors.New("provisioner (err_http_status_code): it is unavailable")
	}
	return lost, nil
}

func (r *runtimes) bind(ctx context.Context, question []byte) (any, error) {
	lost, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	var q event.BindRequest
	if err := json.Unmarshal(question, &q); err != nil {
		return nil, err
	}
	key := q.Runtime.InstanceID + "/" + q.BindingID
	var a event.BindAnswer
	r.set(func() {
		if _, there := r.access[key]; !there {
			r.made[key]++
		}
		r.access[key] = q
		r.tokens++
		a = event.BindAnswer{
			Kubeconfig: fmt.Sprintf("token: %s-%d", r.token, r.tokens),
			ExpiresAt:  time.Now().Add(time.Duration(q.ExpirationSeconds) * time.Second).Truncate(time.Second),
		}
	})
	if lost { // the client can wait slightly longer than announced
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return a, nil
}

func (r *runtimes) unbind(ctx context.Context, question []byte) (any, error) {
	lost, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	var q event.UnbindRequest
	if err := json.Unmarshal(question, &q); err != nil {
		return nil, err
	}
	r.set(func() { delete(r.access, q.Runtime.InstanceID+"/"+q.BindingID) })
	if lost {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return event.UnbindAnswer{}, nil
}

func (r *runtimes) cluster(ctx context.Context, question []byte) (any, error) {
	if _, err := r.begin(ctx); err != nil {
		return nil, err
	}
	var q event.RuntimeAccess
	if err := json.Unmarshal(question, &q); err != nil {
		return nil, err
	}
	return event.ClusterAnswer{Server: "https://api.example.org/" + q.Account + "/" + q.RuntimeID, CAData: "Q0E="}, nil
}

// has returns the existing accesses.
func (r *runtimes) has() map[string]event.BindRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.access)
}

func (r *runtimes) madeOnce(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.made[key] == 1
}
