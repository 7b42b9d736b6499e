package timer_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/timer"
)

const day = 24 * time.Hour

// slowStore needs a second for each batch.
type slowStore struct {
	mu             sync.Mutex
	live, archived int64
	before         [2]time.Time
	// old is the number of old events from outside, and signals the time before which they are deleted.
	old     int64
	signals time.Time
	// orchestrations is the number of old ones, and ended the time before which they are deleted.
	orchestrations int64
	ended          time.Time
	calls          int
	err            error
}

func (p *slowStore) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *slowStore) take(from *int64, limit int) (int64, error) {
	<-time.After(time.Second) // fake time
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	n := min(*from, int64(limit))
	*from -= n
	return n, p.err
}

func (p *slowStore) Archive(_ context.Context, before time.Time, limit int) (int64, error) {
	p.set(func() { p.before[0] = before })
	n, err := p.take(&p.live, limit)
	p.set(func() { p.archived += n })
	return n, err
}

func (p *slowStore) DropArchived(_ context.Context, before time.Time, limit int) (int64, error) {
	p.set(func() { p.before[1] = before })
	return p.take(&p.archived, limit)
}

func (p *slowStore) DropSignals(_ context.Context, before time.Time, _ int) (n int64, err error) {
	p.set(func() { p.signals, n = before, min(p.old, 1) })
	p.set(func() { p.old -= n })
	return n, nil
}

func (p *slowStore) DropOrchestrations(_ context.Context, before time.Time, limit int) (n int64, err error) {
	p.set(func() { p.ended, n = before, min(p.orchestrations, int64(limit)) })
	p.set(func() { p.orchestrations -= n })
	return n, nil
}

func TestRetention_LongRound_PausesNineTimesAsLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		p := &slowStore{live: 1000, old: 1, orchestrations: 3}
		r, err := timer.NewRetention(timer.RetentionConfig{Every: time.Hour, Keep: 90 * day, KeepArchived: 700 * day}, p, registry, time.Now, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		start := time.Now()
		go func() { ended <- r.Run(ctx) }()
		<-time.After(time.Hour + 25*time.Second)
		p.set(func() {
			if p.calls != 3 {
				t.Errorf("%d batches in 25 seconds, want 3 of a second each", p.calls)
			}
		})
		<-time.After(10 * time.Minute)
		p.set(func() {
			if p.live != 0 || p.archived != 0 {
				t.Errorf("%d live and %d archived operations are left, want none", p.live, p.archived)
			}
			if want := start.Add(time.Hour - 90*day); !p.before[0].Equal(want) {
				t.Errorf("archived operations that ended before %s, want %s", p.before[0], want)
			}
			if age := time.Since(p.signals); p.old != 0 || age < event.SignalsKept || age > event.SignalsKept+time.Hour {
				t.Errorf("%d old events are left, those that came %s ago are removed, want 7 days", p.old, age)
			}
			if age := time.Since(p.ended); p.orchestrations != 0 || age < 700*day || age > 700*day+time.Hour {
				t.Errorf("%d old orchestrations are left, those that ended %s ago are removed, want 700 days", p.orchestrations, age)
			}
			if age := time.Since(p.before[1]); age < 700*day || age > 700*day+time.Hour {
				t.Errorf("removed operations that ended %s ago, want 700 days", age)
			}
		})
		err = testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP keb_operations_archived_total Operations that ended long ago and were moved to the archive.
# TYPE keb_operations_archived_total counter
keb_operations_archived_total 1000
# HELP keb_operations_removed_total Archived operations that were removed for good.
# TYPE keb_operations_removed_total counter
keb_operations_removed_total 1000
`))
		if err != nil {
			t.Error(err)
		}
		calls := 0
		p.set(func() { p.live, p.err, calls = 1000, errors.New("the database is away"), p.calls })
		<-time.After(time.Hour)
		p.set(func() {
			if p.calls != calls+1 {
				t.Errorf("%d batches while the database fails, want one per round", p.calls-calls)
			}
		})
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
