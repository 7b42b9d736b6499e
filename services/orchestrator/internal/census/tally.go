package census

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/dispatch"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

const (
	// keepMinutes is how long minutes are kept, and forgetEvery how often older ones are removed.
	keepMinutes = 25 * time.Hour
	forgetEvery = 10 * time.Minute
	// flushLimit bounds a write.
	flushLimit = 10 * time.Second
	// maxPending bounds the counters of a database that cannot be reached; what is new beyond is not counted.
	maxPending = 50_000
)

// Counts keeps what a Tally has counted.
type Counts interface {
	AddTally(ctx context.Context, counts map[store.TallyKey]int64) error
	ForgetTally(ctx context.Context, before time.Time) error
	Tally(ctx context.Context, since time.Time) (map[store.TallyKey]int64, error)
}

// Tally counts what has ended, minute by minute. It counts what its orchestrator has committed in memory, and adds it to a table every few
// seconds, so that no step costs a write. An orchestrator that is killed loses what it has not written yet. It is safe for concurrent use.
type Tally struct {
	every time.Duration
	store Counts
	now   func() time.Time
	log   *slog.Logger

	// table is held while what was counted moves to the table, so that no reader sees it twice or not at all.
	table sync.RWMutex

	mu sync.Mutex
	// pending is not yet written.
	pending map[store.TallyKey]int64
	// forgot is when old minutes were last removed.
	forgot time.Time
}

// NewTally returns a Tally that has counted nothing; every is the time between two writes.
func NewTally(every time.Duration, s Counts, now func() time.Time, log *slog.Logger) *Tally {
	return &Tally{every: every, store: s, now: now, log: log, pending: map[store.TallyKey]int64{}}
}

// Started is what is counted when an operation begins; it is followed by the states in which operations end, and the outcomes of steps.
const Started = "started"

// Committed implements dispatch.Watcher.
func (t *Tally) Committed(transitions []dispatch.Transition) {
	minute := t.now().UTC().Truncate(time.Minute)
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range transitions {
		tr := &transitions[i]
		if tr.Started {
			t.count(minute, tr.Type, "", "", Started)
		}
		if tr.Ended {
			t.count(minute, tr.Type, "", "", string(tr.State))
		}
		for _, e := range tr.Executions {
			t.count(minute, tr.Type, e.Worker, e.Step, string(e.Outcome))
		}
	}
}

func (t *Tally) count(minute time.Time, kind event.OperationType, worker, step, outcome string) {
	k := store.TallyKey{Minute: minute, Type: kind, Worker: worker, Step: step, Outcome: outcome}
	if _, known := t.pending[k]; !known && len(t.pending) >= maxPending {
		return
	}
	t.pending[k]++
}

// Run writes what was counted until ctx ends. Flush writes the rest, once nothing is committed any more.
func (t *Tally) Run(ctx context.Context) error {
	tick := time.NewTicker(t.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			t.Flush(ctx)
		}
	}
}

// Flush adds what was counted to the table. When nothing was it does nothing. What cannot be written stays; a write of which the
// end is not known may count twice or not at all.
func (t *Tally) Flush(ctx context.Context) {
	t.table.Lock()
	defer t.table.Unlock()
	t.mu.Lock()
	if len(t.pending) == 0 {
		t.mu.Unlock()
		return
	}
	counts := t.pending
	t.pending = map[store.TallyKey]int64{}
	now := t.now()
	forget := now.Sub(t.forgot) >= forgetEvery
	if forget {
		t.forgot = now
	}
	t.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, flushLimit)
	defer cancel()
	if err := t.store.AddTally(ctx, counts); err != nil {
		t.mu.Lock()
		for k, n := range counts {
			t.pending[k] += n
		}
		t.mu.Unlock()
		t.log.Warn("counts not written", "err", err)
		return
	}
	if forget {
		if err := t.store.ForgetTally(ctx, now.Add(-keepMinutes)); err != nil {
			t.log.Warn("old counts not removed", "err", err)
		}
	}
}

// Since returns what was counted in a minute and later: what is in the table, and what this process has not written yet.
func (t *Tally) Since(ctx context.Context, since time.Time) (map[store.TallyKey]int64, error) {
	t.table.RLock()
	defer t.table.RUnlock()
	own := map[store.TallyKey]int64{}
	t.mu.Lock()
	for k, n := range t.pending {
		if !k.Minute.Before(since) {
			own[k] = n
		}
	}
	t.mu.Unlock()
	counts, err := t.store.Tally(ctx, since)
	if err != nil {
		return nil, err
	}
	for k, n := range own {
		counts[k] += n
	}
	return counts, nil
}
