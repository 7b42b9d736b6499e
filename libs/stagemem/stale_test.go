package stagemem_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/stagemem"
)

// lagging is a bucket whose replica does not have the latest values for a number of reads.
type lagging struct {
	jetstream.KeyValue
	reads int
}

func (l *lagging) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	if l.reads--; l.reads >= 0 {
		return nil, jetstream.ErrKeyNotFound
	}
	return l.KeyValue.Get(ctx, key)
}

func (f *fixture) lagging(reads int) *stagemem.Memory {
	m := f.other()
	m.Wrap(func(kv jetstream.KeyValue) jetstream.KeyValue { return &lagging{kv, reads} })
	return m
}

func TestRead_ReplicaLags_WaitsForValue(t *testing.T) {
	t.Parallel()
	f := setup(t)
	put(t, f.mem, scope, "kubeconfig", "value")
	if got, err := f.lagging(3).Get(t.Context(), scope, "kubeconfig"); err != nil || string(got) != "value" {
		t.Errorf("get: %q, %v", got, err)
	}
	if err := f.lagging(3).Check(t.Context(), scope); err != nil {
		t.Errorf("check: %v", err)
	}
}

func TestRead_ReplicaLagsForLong_IsNoMissingValue(t *testing.T) {
	t.Parallel()
	f := setup(t)
	put(t, f.mem, scope, "kubeconfig", "value")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := f.lagging(1_000_000).Get(ctx, scope, "kubeconfig"); err == nil || errors.Is(err, stagemem.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
}

func TestRead_DeletedValue_IsNotFound(t *testing.T) {
	t.Parallel()
	f := setup(t)
	put(t, f.mem, scope, "kubeconfig", "value")
	key, err := stagemem.Key(scope, "kubeconfig")
	require.NoError(t, err)
	_, err = f.js.PublishMsg(t.Context(), &nats.Msg{Subject: "$KV." + event.StageBucket + "." + key, Header: nats.Header{"KV-Operation": {"DEL"}}})
	require.NoError(t, err)
	if _, err := f.mem.Get(t.Context(), scope, "kubeconfig"); !errors.Is(err, stagemem.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
}

func TestList_ReplicaLags_IsRepeated(t *testing.T) {
	t.Parallel()
	f := setup(t)
	scripted(t, f, func(round int) []*nats.Msg {
		if round <= 3 {
			return []*nats.Msg{f.value(t, "a"), status("204 EOB", "0")}
		}
		return []*nats.Msg{f.value(t, "a"), f.value(t, "b"), status("204 EOB", "0")}
	})
	for _, key := range []string{"a", "b"} {
		m := f.value(t, key)
		_, err := f.js.Publish(t.Context(), m.Header.Get(jetstream.SubjectHeader), m.Data)
		require.NoError(t, err)
	}
	values, err := f.mem.List(t.Context(), scope, "")
	require.NoError(t, err)
	if diff := cmp.Diff(map[string][]byte{"a": []byte("value of a"), "b": []byte("value of b")}, values); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}
