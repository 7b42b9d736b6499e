package stagemem_test

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/testkit"
)

var scope = stagemem.Scope{OperationID: "6f7d1f7e-0000-4000-8000-000000000001", Stage: "create_runtime", StageAttempt: 1}

type fixture struct {
	nats *testkit.NATSServer
	js   jetstream.JetStream
	keys *seal.Keyring
	mem  *stagemem.Memory
}

func setup(t testing.TB) *fixture {
	t.Helper()
	n := testkit.NATS(t)
	b, err := bus.Connect(t.Context(), bus.Config{URL: n.URL()}, bus.Deps{})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	js := b.JetStream()
	keys, err := seal.ParseKeyring("test:" + seal.NewKey())
	require.NoError(t, err)
	return &fixture{nats: n, js: js, keys: keys, mem: stagemem.New(js, keys)}
}

// other returns the memory of another process.
func (f *fixture) other() *stagemem.Memory { return stagemem.New(f.js, f.keys) }

func put(t testing.TB, m *stagemem.Memory, s stagemem.Scope, key, value string) {
	t.Helper()
	require.NoError(t, m.Put(t.Context(), s, key, []byte(value)))
}

func TestGet_OtherProcess_ReturnsValue(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for _, key := range []string{"kubeconfig", "overrides.avs", "any *text* > ä"} {
		put(t, f.mem, scope, key, "first")
		put(t, f.mem, scope, key, "value of "+key)
		got, err := f.other().Get(t.Context(), scope, key)
		if err != nil || string(got) != "value of "+key {
			t.Errorf("get %q: %q, %v", key, got, err)
		}
	}
}

func TestGet_OtherScope_ReturnsErrNotFound(t *testing.T) {
	t.Parallel()
	f := setup(t)
	put(t, f.mem, scope, "key", "value")
	for _, s := range []stagemem.Scope{
		{OperationID: scope.OperationID, Stage: scope.Stage, StageAttempt: 2},
		{OperationID: scope.OperationID, Stage: "other", StageAttempt: 1},
		{OperationID: "other", Stage: scope.Stage, StageAttempt: 1},
	} {
		if _, err := f.mem.Get(t.Context(), s, "key"); !errors.Is(err, stagemem.ErrNotFound) {
			t.Errorf("%+v: error is %v, want ErrNotFound", s, err)
		}
	}
}

func TestList_Prefix_ReturnsItsKeys(t *testing.T) {
	t.Parallel()
	f := setup(t)
	put(t, f.mem, scope, "overrides.avs", "1")
	put(t, f.mem, scope, "overrides.edp", "2")
	put(t, f.mem, scope, "kubeconfig", "3")
	put(t, f.mem, stagemem.Scope{OperationID: scope.OperationID, Stage: scope.Stage, StageAttempt: 2}, "overrides.ias", "4")
	for prefix, want := range map[string]map[string][]byte{
		"overrides.": {"overrides.avs": []byte("1"), "overrides.edp": []byte("2")},
		"":           {"overrides.avs": []byte("1"), "overrides.edp": []byte("2"), "kubeconfig": []byte("3")},
		"nothing":    {},
	} {
		got, err := f.other().List(t.Context(), scope, prefix)
		require.NoError(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("prefix %q (-want +got):\n%s", prefix, diff)
		}
	}
}

func TestPut_Value_IsSealed(t *testing.T) {
	t.Parallel()
	f := setup(t)
	put(t, f.mem, scope, "key", "canary-value")
	kv, err := f.js.KeyValue(t.Context(), event.StageBucket)
	require.NoError(t, err)
	e, err := kv.Get(t.Context(), scope.OperationID+".create_runtime.1.key")
	require.NoError(t, err)
	if bytes.Contains(e.Value(), []byte("canary")) {
		t.Errorf("the bucket holds %q in the clear", e.Value())
	}
	// A value that is copied to another key does not open.
	_, err = kv.Put(t.Context(), scope.OperationID+".create_runtime.1.stolen", e.Value())
	require.NoError(t, err)
	if _, err := f.mem.Get(t.Context(), scope, "stolen"); !errors.Is(err, seal.ErrTampered) {
		t.Errorf("error is %v, want ErrTampered", err)
	}
}

func TestCheck_ServerRestarted_ReturnsErrLost(t *testing.T) {
	t.Parallel()
	f := setup(t)
	if err := f.mem.Check(t.Context(), scope); !errors.Is(err, stagemem.ErrLost) {
		t.Errorf("memory that was never used: error is %v, want ErrLost", err)
	}
	put(t, f.mem, scope, "key", "value")
	if err := f.other().Check(t.Context(), scope); err != nil {
		t.Errorf("memory that is there: %v", err)
	}
	f.nats.Restart(t)
	// A request that was in flight when the connection broke gets no answer.
	var err error
	testkit.Eventually(t, time.Minute, "an answer after the restart", func() bool {
		err = f.mem.Check(t.Context(), scope)
		return !errors.Is(err, context.DeadlineExceeded)
	})
	if !errors.Is(err, stagemem.ErrLost) {
		t.Errorf("after a restart: error is %v, want ErrLost", err)
	}
}

func TestCheck_PutAfterLoss_ReturnsErrLost(t *testing.T) {
	t.Parallel()
	f := setup(t)
	put(t, f.mem, scope, "early", "value")
	worker := f.other()
	require.NoError(t, worker.Check(t.Context(), scope))
	f.nats.Restart(t)
	// A request that was in flight when the connection broke gets no answer. The step would run again.
	testkit.Eventually(t, time.Minute, "the late value is put", func() bool {
		return worker.Put(t.Context(), scope, "late", []byte("value")) == nil
	})
	if err := f.other().Check(t.Context(), scope); !errors.Is(err, stagemem.ErrLost) {
		t.Errorf("error is %v, want ErrLost: the early value is gone", err)
	}
}

func TestCheck_ConnectionLost_Retries(t *testing.T) {
	t.Parallel()
	f := setup(t)
	put(t, f.mem, scope, "key", "value")
	address, err := url.Parse(f.nats.URL())
	require.NoError(t, err)
	for name, ask := range map[string]func(ctx context.Context, m *stagemem.Memory) error{
		"get": func(ctx context.Context, m *stagemem.Memory) error { _, err := m.Get(ctx, scope, "key"); return err },
		"list": func(ctx context.Context, m *stagemem.Memory) error {
			values, err := m.List(ctx, scope, "")
			if err == nil && len(values) == 0 {
				return stagemem.ErrNotFound
			}
			return err
		},
		"put":   func(ctx context.Context, m *stagemem.Memory) error { return m.Put(ctx, scope, "put", []byte("value")) },
		"check": func(ctx context.Context, m *stagemem.Memory) error { return m.Check(ctx, scope) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			way := testkit.Proxy(t, address.Host)
			b := testkit.Connect(t, "nats://"+way.Addr())
			m := stagemem.New(b.JetStream(), f.keys)
			if err := m.Check(t.Context(), scope); err != nil { // the bucket is known now
				t.Fatal(err)
			}
			way.Stall()
			sent := b.NATS().Stats().OutMsgs
			// This is the duration of a step; the request must not take so long.
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			answer := make(chan error, 1)
			go func() { answer <- ask(ctx, m) }()
			testkit.Eventually(t, time.Minute, "the question is on its way", func() bool { return b.NATS().Stats().OutMsgs > sent })
			way.Cut()
			way.Restore()
			select {
			case err := <-answer:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Error("there is no answer after a minute")
				cancel()
				<-answer
			}
		})
	}
}

func TestMemory_BucketLost_WorksAgain(t *testing.T) {
	t.Parallel()
	f := setup(t)
	put(t, f.mem, scope, "key", "value")
	require.NoError(t, f.js.DeleteKeyValue(t.Context(), event.StageBucket))
	if _, err := f.mem.Get(t.Context(), scope, "key"); !errors.Is(err, stagemem.ErrNotFound) {
		t.Errorf("get: error is %v, want ErrNotFound", err)
	}
	require.NoError(t, f.js.DeleteKeyValue(t.Context(), event.StageBucket))
	if got, err := f.mem.List(t.Context(), scope, ""); err != nil || len(got) != 0 {
		t.Errorf("list: %v, %v; want nothing", got, err)
	}
	require.NoError(t, f.js.DeleteKeyValue(t.Context(), event.StageBucket))
	if err := f.mem.Purge(t.Context(), scope.OperationID, ""); err != nil {
		t.Errorf("purge: %v", err)
	}
	next := scope
	next.StageAttempt++
	put(t, f.mem, next, "key", "again")
	if err := f.mem.Check(t.Context(), next); err != nil {
		t.Errorf("check: %v", err)
	}
}

func TestPurge_StageOrOperation_RemovesValues(t *testing.T) {
	t.Parallel()
	f := setup(t)
	second, other := scope, scope
	second.StageAttempt = 2
	other.Stage = "post_actions"
	foreign := stagemem.Scope{OperationID: "another", Stage: scope.Stage, StageAttempt: 1}
	for _, s := range []stagemem.Scope{scope, second, other, foreign} {
		put(t, f.mem, s, "key", "value")
	}
	expect := func(lost ...bool) {
		t.Helper()
		for i, s := range []stagemem.Scope{scope, second, other, foreign} {
			if err := f.mem.Check(t.Context(), s); errors.Is(err, stagemem.ErrLost) != lost[i] {
				t.Errorf("%+v: error is %v, want lost %t", s, err, lost[i])
			}
		}
	}
	require.NoError(t, f.mem.Purge(t.Context(), scope.OperationID, scope.Stage))
	expect(true, true, false, false)
	require.NoError(t, f.mem.Purge(t.Context(), scope.OperationID, ""))
	expect(true, true, true, false)

	st, err := f.js.Stream(t.Context(), "KV_"+event.StageBucket)
	require.NoError(t, err)
	if got := st.CachedInfo().State.Msgs; got != 2 {
		t.Errorf("the bucket holds %d entries, want the 2 of the other operation", got)
	}
}

func TestPut_InvalidScopeOrKey_IsRejected(t *testing.T) {
	t.Parallel()
	m := stagemem.New(nil, nil) // rejected before the first use
	for name, c := range map[string]struct {
		scope stagemem.Scope
		key   string
	}{
		"no operation": {stagemem.Scope{Stage: "s", StageAttempt: 1}, "k"},
		"no stage":     {stagemem.Scope{OperationID: "o", StageAttempt: 1}, "k"},
		"no attempt":   {stagemem.Scope{OperationID: "o", Stage: "s"}, "k"},
		"no key":       {scope, ""},
	} {
		if err := m.Put(t.Context(), c.scope, c.key, nil); err == nil {
			t.Errorf("put with %s succeeds", name)
		}
		if _, err := m.Get(t.Context(), c.scope, c.key); err == nil {
			t.Errorf("get with %s succeeds", name)
		}
	}
	if err := m.Purge(t.Context(), "", ""); err == nil {
		t.Error("purge without an operation succeeds: it would purge everything")
	}
}
