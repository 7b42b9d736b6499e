package limit_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
)

type fakeStore struct {
	mu  sync.Mutex
	doc limit.Document
	err error
}

func (s *fakeStore) set(version int64, text string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doc, s.err = limit.Document{Version: version, Text: text, AppliedBy: "jane"}, err
}

func (s *fakeStore) Limits(context.Context) (limit.Document, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.doc, s.err
}

// version returns the version in memory.
func version(c *limit.Cache) int64 {
	_, v := c.Current()
	return v
}

func TestCache_Change_ReachesTheOtherOrchestrators(t *testing.T) {
	t.Parallel()
	server := testkit.NATS(t)
	connect := func() *nats.Conn {
		nc, err := nats.Connect(server.URL())
		require.NoError(t, err)
		t.Cleanup(nc.Close)
		return nc
	}
	s := &fakeStore{}
	changed := make(chan struct{}, 10)
	caches := make([]*limit.Cache, 2)
	var group sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer group.Wait()
	defer cancel()
	for i := range caches {
		nc := connect()
		caches[i] = limit.NewCache(time.Second, s, nc, func() { changed <- struct{}{} }, slog.New(slog.DiscardHandler))
		if !caches[i].Load(ctx) {
			t.Fatal("not loaded")
		}
		group.Go(func() { _ = caches[i].Run(ctx) })
		testkit.Eventually(t, time.Minute, "the cache listens", func() bool { return nc.NumSubscriptions() > 0 })
		require.NoError(t, nc.Flush())
	}
	s.set(1, "limits: [{name: a, commands: 1}]", nil)
	require.NoError(t, caches[0].Changed(ctx))
	if v := version(caches[0]); v != 1 {
		t.Errorf("version %d in the orchestrator that changed the limits, want 1", v)
	}
	testkit.Eventually(t, time.Minute, "the other orchestrator applies the change", func() bool { return version(caches[1]) == 1 })
	for range caches {
		<-changed
	}

	s.set(2, "limits: [{name: a, commands: 2}]", nil) // its notice is lost
	caches[1].Seen(1)
	caches[1].Seen(2)
	testkit.Eventually(t, time.Minute, "the sweep finds the change", func() bool { return version(caches[1]) == 2 })
	set, _ := caches[1].Current()
	if got := set.Limits[0].Commands; got != 2 {
		t.Errorf("%d commands, want 2", got)
	}
}

func TestCache_UnreadableDocument_KeepsTheKnownLimits(t *testing.T) {
	t.Parallel()
	s := &fakeStore{}
	c := limit.NewCache(time.Second, s, nil, nil, slog.New(slog.DiscardHandler))
	s.set(3, "limits: [{name: a, commands: 1}]", nil)
	require.NoError(t, c.Refresh(t.Context()))
	away := errors.New("away")
	s.set(4, "", away)
	if err := c.Refresh(t.Context()); !errors.Is(err, away) {
		t.Errorf("error %v, want %v", err, away)
	}
	s.set(4, "limits: 1", nil)
	if err := c.Refresh(t.Context()); err == nil {
		t.Error("an invalid document is accepted")
	}
	s.set(2, "", nil) // an answer that was overtaken
	require.NoError(t, c.Refresh(t.Context()))
	if set, v := c.Current(); v != 3 || len(set.Limits) != 1 {
		t.Errorf("version %d with %d limits, want the last known one", v, len(set.Limits))
	}
}
