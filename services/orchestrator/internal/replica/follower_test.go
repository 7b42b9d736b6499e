package replica

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A read that began before a change ends after the change was read: what it found is old.
func TestFollower_OlderRead_DoesNotReplaceNewerOne(t *testing.T) {
	t.Parallel()
	var stored, reads atomic.Int64
	began, release := make(chan struct{}), make(chan struct{})
	f := NewFollower("numbers", "test", func(context.Context) error {
		n := reads.Add(1)
		if n == 1 {
			close(began)
			<-release
		}
		stored.Store(n)
		return nil
	}, nil, slog.New(slog.DiscardHandler))
	first, changed := make(chan bool, 1), make(chan error, 1)
	go func() { first <- f.Load(t.Context()) }()
	<-began
	go func() { changed <- f.Changed(t.Context()) }()
	go func() { changed <- f.Changed(t.Context()) }()
	require.False(t, f.reading.TryLock(), "another read could begin")
	close(release)
	require.True(t, <-first)
	require.NoError(t, <-changed)
	require.NoError(t, <-changed)
	require.Equal(t, int64(3), stored.Load())
}
