package census

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/dispatch"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

const (
	// keep is the retention time of counters, and forgetEvery the interval in which old ones are deleted.
	keep        = 25 * time.Hour
	forgetEvery = 10 * time.Minute
	// flushTimeout bounds a write.
	flushTimeout = 10 * time.Second
	// maxPending is the maximum number of unwritten counters while the database is unavailable. Further counters are dropped.
	maxPending = 50_000
)

// Counts stores the counters of a Tally.
type Counts interface {
	AddTally(ctx context.Context, counts map[store.TallyKey]int64) error
	ForgetTally(ctx context.Context, before time.Time) error
	Tally(ctx context.Context, since time.Time) (map[store.TallyKey]int64, error)
}

// Tally counts started and ended operations and ended steps per minute. It counts the commits of its orchestrator in memory and adds the
// counters to a table every few seconds, so that a step needs no extra write. A killed orchestrator loses its unwritten counters. Tally is
// safe for concurrent use.
type Tally struct {
	every time.Duration
	store Counts
	now   func() time.Time
	log   *slog.Logger

	// table is locked while counters move to the table, so that a reader sees each exactly once.
	table sync.RWMutex

	mu sync.Mutex
	// pending holds the unwritten counters by the key of the outcome.
	pending map[store.TallyKey]*counter
	// forgot is the time at which old counters were last deleted.
	forgot time.Time
}

// counter is how often an outcome was counted, how many of these executions of a step were timed, and how many milliseconds they took.
type counter struct {
	n, timed, took int64
}

// NewTally returns an empty Tally; every is the time between two writes.
func NewTally(every time.Duration, s Counts, now func() time.Time, log *slog.Logger) *Tally {
	return &Tally{every: every, store: s, now: now, log: log, pending: map[store.TallyKey]*counter{}}
}

// Started is the outcome that counts the start of an operation, and Polled the one that counts a retry of a step without an error. The other
// outcomes are the final states of operations and the outcomes of steps.
const (
	Started = "started"
	Polled  = "polled"
)

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
			outcome := string(e.Outcome)
			if e.Polled {
				outcome = Polled
			}
			c := t.count(minute, tr.Type, e.Worker, e.Step, outcome)
			if e.Worker != process.WorkerOrchestrator && e.Outcome != event.OutcomeNoAnswer {
				c.timed++
				c.took += max(1, e.Took.Milliseconds())
			}
		}
	}
}

// count counts an outcome once, and returns its counter. Beyond maxPending the counter is kept nowhere.
func (t *Tally) count(minute time.Time, kind event.OperationType, worker, step, outcome string) *counter {
	k := store.TallyKey{Minute: minute, Type: kind, Worker: worker, Step: step, Outcome: outcome}
	c := t.pending[k]
	if c == nil {
		c = &counter{}
		if len(t.pending) < maxPending {
			t.pending[k] = c
		}
	}
	c.n++
	return c
}

// addTo adds the counter with its key to counts, which has an entry for each of its numbers.
func (c *counter) addTo(counts map[store.TallyKey]int64, k store.TallyKey) {
	counts[k] += c.n
	if c.timed > 0 {
		k.Outcome = store.TallyTimed
		counts[k] += c.timed
		k.Outcome = store.TallyTook
		counts[k] += c.took
	}
}

// Run writes the counters regularly until ctx ends. After the last commit the caller must call Flush.
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

// Flush adds the counters to the table. After an error the counters are kept. If the outcome of a write is unknown, its counters may count
// twice or not at all.
func (t *Tally) Flush(ctx context.Context) {
	t.table.Lock()
	defer t.table.Unlock()
	t.mu.Lock()
	if len(t.pending) == 0 {
		t.mu.Unlock()
		return
	}
	written := t.pending
	t.pending = map[store.TallyKey]*counter{}
	now := t.now()
	forget := now.Sub(t.forgot) >= forgetEvery
	if forget {
		t.forgot = now
	}
	t.mu.Unlock()

	counts := make(map[store.TallyKey]int64, len(written))
	for k, c := range written {
		c.addTo(counts, k)
	}
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := t.store.AddTally(ctx, counts); err != nil {
		t.mu.Lock()
		for k, c := range written {
			if newer := t.pending[k]; newer != nil {
				c.n, c.timed, c.took = c.n+newer.n, c.timed+newer.timed, c.took+newer.took
			}
			t.pending[k] = c
		}
		t.mu.Unlock()
		t.log.Warn("counts not written", "err", err)
		return
	}
	if forget {
		if err := t.store.ForgetTally(ctx, now.Add(-keep)); err != nil {
			t.log.Warn("old counts not removed", "err", err)
		}
	}
}

// Since returns the counters since a minute: those in the table, and the unwritten ones of this process.
func (t *Tally) Since(ctx context.Context, since time.Time) (map[store.TallyKey]int64, error) {
	t.table.RLock()
	defer t.table.RUnlock()
	own := map[store.TallyKey]int64{}
	t.mu.Lock()
	for k, c := range t.pending {
		if !k.Minute.Before(since) {
			c.addTo(own, k)
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
