package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

const (
	// grantBatch is the maximum number of commands that one transaction grants, and arrivedBatch that of commands that get a place.
	grantBatch   = 200
	arrivedBatch = 500
	// boundedPage is the number of operations that a review reads at once.
	boundedPage = 1000
	// reviews is the number of reviews after a change of the limits, one each reviewEvery: another orchestrator may have decided commands
	// with the previous limits.
	reviews     = 4
	reviewEvery = time.Second
	// grantPause is the time from a round that failed to the next one, unless WakeGrants starts it before.
	grantPause = time.Second
	// dropTurnsEvery is the interval at which turns without effect are deleted.
	dropTurnsEvery = time.Minute
)

// granter is what the dispatcher knows about the next round of grants.
type granter struct {
	mu sync.Mutex
	// queues are limits with new waiters or with room that has become free; all means every queue.
	queues map[string]bool
	all    bool
	wake   chan struct{}

	// The following are used by Grant only.
	run     sync.Mutex
	version int64
	// reviews is the number of reviews that are left, the next one at nextReview.
	reviews              int
	nextReview, nextDrop time.Time
}

// add makes the next round serve queues, and starts it.
func (g *granter) add(all bool, queues ...string) {
	if !all && len(queues) == 0 {
		return
	}
	g.keep(all, queues...)
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// keep makes the next round serve queues, but does not start it.
func (g *granter) keep(all bool, queues ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = g.all || all
	for _, q := range queues {
		g.queues[q] = true
	}
}

func (g *granter) take() (queues []string, all bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	queues, all = slices.Sorted(maps.Keys(g.queues)), g.all
	g.queues, g.all = map[string]bool{}, false
	return queues, all
}

// WakeGrants makes the next round of RunGrants serve every queue.
func (d *Dispatcher) WakeGrants() { d.granter.add(true) }

// RunGrants grants commands that wait for limits until ctx ends. After an error it pauses for grantPause.
func (d *Dispatcher) RunGrants(ctx context.Context) error {
	pause := time.NewTimer(time.Hour)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.granter.wake:
		case <-pause.C:
		}
		next, err := d.Grant(ctx)
		if err != nil && ctx.Err() == nil {
			d.log.Warn("commands that wait for limits not granted", "err", err)
		}
		if !next.IsZero() {
			pause.Reset(max(next.Sub(d.deps.Now()), time.Millisecond))
		}
	}
}

// Grant sends commands that wait for limits with room. It returns the time of the next round, also with an error; zero if there is nothing to
// wait for but the next WakeGrants. Orchestrators grant one after the other, so that they count the same commands in flight.
func (d *Dispatcher) Grant(ctx context.Context) (next time.Time, err error) {
	g := &d.granter
	g.run.Lock()
	defer g.run.Unlock()
	set, version := d.deps.Limits.Current()
	queues, all := g.take()
	if version != g.version {
		g.version, g.reviews, g.nextReview = version, reviews, time.Time{}
	}
	if now := d.deps.Now(); g.reviews > 0 && !now.Before(g.nextReview) {
		all = true
		if err := d.review(ctx, set); err != nil {
			g.keep(true)
			return now.Add(grantPause), err
		}
		g.reviews, g.nextReview = g.reviews-1, now.Add(reviewEvery)
	}
	for more := all || len(queues) > 0; more; {
		r, err := d.grantRound(ctx, queues, all)
		if err != nil {
			g.keep(all, queues...)
			return d.deps.Now().Add(grantPause), fmt.Errorf("grant commands: %w", err)
		}
		if next, more = r.next, r.more; !more {
			g.keep(false, r.paced...)
		}
	}
	if g.reviews > 0 {
		next = earliest(next, g.nextReview)
	}
	return next, nil
}

// earliest returns the earlier of two times; the zero value is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// keysOf returns the limits that the decided command of an operation needs room in.
func keysOf(set *limit.Set, w *work) []limit.Key {
	if len(set.Limits) == 0 {
		return nil
	}
	return set.OfCommand(&w.row.Operation, engine.Next(w.process, &w.row.State))
}

func texts(keys []limit.Key) []string {
	var out []string
	for _, k := range keys {
		out = append(out, k.String())
	}
	return out
}

// rebound returns the event that applies changed limits to an operation; nil if there is nothing to do.
func rebound(w *work, set *limit.Set) engine.Event {
	if !w.row.InFlight() && !w.row.Limited() {
		return nil
	}
	keys := texts(keysOf(set, w))
	switch {
	case w.row.InFlight() || len(keys) == 0:
		return engine.Grant{Keys: keys}
	case slices.Contains(keys, w.row.Queue):
		return nil
	}
	return engine.Park{Queue: keys[0]}
}

// review applies changed limits to commands that were decided before: it counts those in flight, and frees or moves those that wait for a
// limit that they are not in the scope of.
func (d *Dispatcher) review(ctx context.Context, set *limit.Set) error {
	for after := minID; after != ""; {
		var ids []string
		err := d.withBatchTimeout(ctx, func(ctx context.Context) (err error) {
			ids, after, err = d.misplaced(ctx, set, after)
			return err
		})
		if err != nil {
			return err
		}
		for batch := range slices.Chunk(ids, grantBatch) {
			_, _, err := d.wakeBatch(ctx, d.dueBatch, func(ctx context.Context, tx Tx, _ time.Time, _ int) ([]string, error) { return tx.LockAll(ctx, batch) },
				func(w *work, now time.Time) error {
					newest, _ := d.deps.Limits.Current()
					e := rebound(w, newest)
					if e == nil {
						return engine.ErrNotPossible
					}
					return w.apply(e, now)
				})
			if err != nil {
				return fmt.Errorf("apply changed limits: %w", err)
			}
		}
	}
	return nil
}

// misplaced returns the operations of one page that do not count or wait as the limits demand. next is the start of the next page; empty if
// there is none.
func (d *Dispatcher) misplaced(ctx context.Context, set *limit.Set, after string) (ids []string, next string, err error) {
	page, err := d.deps.Store.Bounded(ctx, after, boundedPage)
	if err != nil {
		return nil, "", err
	}
	for i := range page {
		b := &page[i]
		p, err := d.deps.Definitions.Pinned(ctx, b.Definition)
		if err != nil {
			if isTransient(ctx, err) {
				return nil, "", err
			}
			continue // the operation cannot continue, which is logged when it is due
		}
		step := p.At(b.Stage, b.Step)
		if step == nil {
			continue
		}
		keys := texts(set.OfCommand(&b.Operation, step))
		if b.Queue == "" && !slices.Equal(keys, b.Granted) || b.Queue != "" && !slices.Contains(keys, b.Queue) {
			ids = append(ids, b.Operation.ID)
		}
	}
	if len(page) == boundedPage {
		next = page[len(page)-1].Operation.ID
	}
	return ids, next, nil
}

// grants is one round of Grant, in one transaction.
type grants struct {
	d   *Dispatcher
	tx  Tx
	set *limit.Set
	now time.Time
	// inUse counts the commands in flight, and rates has when the next command may begin, by key; taken are the rates that have changed.
	inUse map[string]int
	rates map[string]time.Time
	taken map[string]time.Time
	works []*work
	moved []moved
	// queued reports whether commands wait in a line.
	queued map[line]bool
	// next is the earliest time at which a rate has room, and paced are the queues that wait for it; more means that the round has stopped
	// before the end.
	next  time.Time
	paced []string
	more  bool
}

// moved is a waiter that has changed its queue.
type moved struct {
	from   string
	waiter store.Waiter
}

// grantRound serves queues in one transaction, and publishes the commands.
func (d *Dispatcher) grantRound(ctx context.Context, queues []string, all bool) (r *grants, err error) {
	for range maxRounds {
		err = d.runToCompletion(ctx, func(ctx context.Context) (err error) {
			var written bool
			begun := d.deps.Now()
			if r, written, err = d.grantAll(ctx, queues, all); err != nil {
				if written { // the transaction may have been committed
					d.uncache(r.works)
					d.outbox.add(r.works, begun)
				}
				return err
			}
			d.committed(r.works)
			_, err = d.carryOut(ctx, r.works, nil)
			return err
		})
		if !postgres.IsRetryable(err) && !errors.Is(err, store.ErrConflict) {
			break
		}
	}
	return r, err
}

func (d *Dispatcher) grantAll(ctx context.Context, queues []string, all bool) (r *grants, written bool, err error) {
	r = &grants{}
	err = d.deps.Store.InTx(ctx, func(tx Tx) error {
		set, version := d.deps.Limits.Current()
		if version != d.granter.version { // they are reviewed first
			d.granter.add(true)
			return errNothingToDo
		}
		r = &grants{d: d, tx: tx, set: set, now: d.deps.Now(), taken: map[string]time.Time{}, queued: map[line]bool{}}
		if err := tx.LockLimits(ctx); err != nil {
			return err
		}
		if all {
			if queues, err = tx.WaitedFor(ctx); err != nil {
				return err
			}
			if r.now.After(d.granter.nextDrop) {
				d.granter.nextDrop = r.now.Add(dropTurnsEvery)
				if err := tx.DropTurns(ctx, r.now); err != nil {
					return err
				}
			}
		}
		if len(queues) == 0 {
			return errNothingToDo
		}
		if r.inUse, err = tx.InUse(ctx); err != nil {
			return err
		}
		if r.rates, err = tx.Rates(ctx, r.now); err != nil {
			return err
		}
		for _, queue := range queues {
			for _, upgrade := range []bool{false, true} {
				if err := r.serve(ctx, queue, upgrade); err != nil {
					return err
				}
			}
		}
		return r.write(ctx, &written)
	})
	if errors.Is(err, errNothingToDo) {
		err = nil
	}
	return r, written, err
}

// write writes the round.
func (r *grants) write(ctx context.Context, written *bool) error {
	for _, w := range r.works {
		w.release()
	}
	changes := changesOf(r.works)
	done, err := r.tx.Write(ctx, changes)
	if err != nil {
		return err
	}
	if len(done) != len(changes) {
		return store.ErrConflict
	}
	for i := range r.moved {
		if err := r.tx.Move(ctx, r.moved[i].from, r.moved[i].waiter); err != nil {
			return err
		}
	}
	if len(r.taken) > 0 {
		if err := r.tx.SetRates(ctx, r.taken); err != nil {
			return err
		}
	}
	*written = true
	return nil
}

// bound returns the limit of a queue; nil if it has gone.
func (r *grants) bound(queue string) *limit.Limit {
	name := limit.NameOf(queue)
	i := slices.IndexFunc(r.set.Limits, func(l limit.Limit) bool { return l.Name == name && l.BoundsCommands() })
	if i < 0 {
		return nil
	}
	return &r.set.Limits[i]
}

// room returns the number of commands that a limit has room for now, up to grantBatch. A rate without room determines the next round.
func (r *grants) room(l *limit.Limit, key string) int {
	room := grantBatch
	if l.Commands > 0 {
		room = min(room, l.Commands-r.inUse[key])
	}
	if room > 0 && l.Rate.Commands > 0 {
		next := l.Rate.Bounded(r.rates[key], r.now)
		if !next.Equal(r.rates[key]) {
			r.rates[key], r.taken[key] = next, next
		}
		if at := l.Rate.Ready(next); at.After(r.now) {
			r.next = earliest(r.next, at)
			if !slices.Contains(r.paced, key) {
				r.paced = append(r.paced, key)
			}
			return 0
		}
		room = min(room, l.Rate.AtOnce())
	}
	return max(room, 0)
}

// take takes room in the limits of a command.
func (r *grants) take(keys []limit.Key) {
	for _, k := range keys {
		text := k.String()
		r.inUse[text]++
		if k.Limit.Rate.Commands > 0 {
			r.rates[text] = k.Limit.Rate.Taken(r.rates[text], r.now)
			r.taken[text] = r.rates[text]
		}
	}
}

// line is a queue. Upgrades are a line of their own, behind the other operations.
type line struct {
	queue   string
	upgrade bool
}

// front are the first waiters of a line.
type front struct {
	line
	// waiters are the next ones, in order; arrived are those without a place among them.
	waiters []store.Waiter
	arrived map[string]bool
	// turns has the next turn of each account with new waiters.
	turns map[string]float64
	// last is the last waiter that was read from the queue, and end means that there are no more.
	last store.Waiter
	end  bool
}

// serve grants commands of a queue in order while its limit has room. Waiters that arrived since the last round get their places.
func (r *grants) serve(ctx context.Context, queue string, upgrade bool) error {
	l := &front{line: line{queue, upgrade}, last: store.Waiter{Turn: math.Inf(-1), ID: minID}}
	if err := r.read(ctx, l, r.roomIn(queue)); err != nil {
		return err
	}
	if err := r.place(ctx, l); err != nil {
		return err
	}
	for r.roomIn(queue) > 0 && len(l.waiters) > 0 {
		if len(r.works) >= grantBatch {
			r.more = true
			break
		}
		n := min(r.roomIn(queue), len(l.waiters))
		if err := r.grant(ctx, l, n); err != nil {
			return err
		}
		if len(l.waiters) == 0 && !l.end {
			if err := r.read(ctx, l, r.roomIn(queue)); err != nil {
				return err
			}
		}
	}
	return r.keep(ctx, l)
}

func (r *grants) roomIn(queue string) int {
	if l := r.bound(queue); l != nil {
		return r.room(l, queue)
	}
	return grantBatch
}

// read reads the next waiters with a place.
func (r *grants) read(ctx context.Context, l *front, n int) error {
	n = max(n, 1) // the first one determines the places of new waiters
	found, err := r.tx.Head(ctx, l.queue, l.upgrade, l.last, n)
	if err != nil {
		return err
	}
	if l.end = len(found) < n; len(found) > 0 {
		l.last = found[len(found)-1]
	}
	l.waiters = append(l.waiters, found...)
	return nil
}

// place gives new waiters their turns by start-time fair queueing: each takes the next turn of its global account, which is one turn
// divided by the weight of the account after its previous one, but not before the first waiter of the queue.
func (r *grants) place(ctx context.Context, l *front) error {
	found, err := r.tx.Arrived(ctx, l.queue, l.upgrade, arrivedBatch)
	if err != nil || len(found) == 0 {
		return err
	}
	r.more = r.more || len(found) == arrivedBatch
	var accounts []string
	for i := range found {
		if account := found[i].GlobalAccount; !slices.Contains(accounts, account) {
			accounts = append(accounts, account)
		}
	}
	var earliest float64
	if l.turns, earliest, err = r.tx.Turns(ctx, l.queue, l.upgrade, accounts); err != nil {
		return err
	}
	if len(l.waiters) > 0 {
		earliest = l.waiters[0].Turn
	}
	l.arrived = map[string]bool{}
	for i := range found {
		w := &found[i]
		w.Turn = max(earliest, l.turns[w.GlobalAccount])
		l.turns[w.GlobalAccount] = w.Turn + 1/r.set.Weight(w.GlobalAccount)
		l.arrived[w.ID] = true
	}
	l.waiters = append(l.waiters, found...)
	slices.SortFunc(l.waiters, func(a, b store.Waiter) int { return cmp.Or(cmp.Compare(a.Turn, b.Turn), cmp.Compare(a.ID, b.ID)) })
	return nil
}

// grant grants or moves up to n waiters. It stops when the limit has no room.
func (r *grants) grant(ctx context.Context, l *front, n int) error {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = l.waiters[i].ID
	}
	rows, err := r.tx.Load(ctx, ids)
	if err != nil {
		return err
	}
	for range n {
		if r.roomIn(l.queue) == 0 {
			return nil
		}
		waiter := l.waiters[0]
		row := rows[waiter.ID]
		l.waiters = l.waiters[1:]
		delete(l.arrived, waiter.ID)
		if row == nil || row.Queue != l.queue {
			continue
		}
		w, err := r.d.newWork(ctx, row, true)
		if err != nil {
			if isTransient(ctx, err) {
				return err
			}
			logStuck(r.d.log, row, err)
			continue
		}
		if err := r.decide(ctx, w, l.line, waiter); err != nil && !errors.Is(err, engine.ErrNotPossible) {
			return err
		}
	}
	return nil
}

// full returns the first limit that has no room for the command of a waiter; empty if all have. The room of a limit belongs to the commands
// that wait for it; only one that has waited there before does not have to wait behind them.
func (r *grants) full(ctx context.Context, keys []limit.Key, from line, waiter store.Waiter) (string, error) {
	for _, k := range keys {
		key := k.String()
		if r.room(k.Limit, key) == 0 {
			return key, nil
		}
		if key == from.queue || slices.Contains(waiter.Before, key) {
			continue
		}
		queue := line{queue: key, upgrade: from.upgrade}
		queued, known := r.queued[queue]
		if !known {
			var err error
			if queued, err = r.tx.Queued(ctx, key, from.upgrade); err != nil {
				return "", err
			}
			r.queued[queue] = queued
		}
		if queued {
			return key, nil
		}
	}
	return "", nil
}

// decide grants the command of a waiter if all its limits have room. Otherwise it waits for the first one that has none.
func (r *grants) decide(ctx context.Context, w *work, from line, waiter store.Waiter) error {
	keys := keysOf(r.set, w)
	full, err := r.full(ctx, keys, from, waiter)
	if err != nil {
		return err
	}
	if full != "" {
		if err := w.apply(engine.Park{Queue: full}, r.now); err != nil {
			return err
		}
		r.moved, r.queued[line{full, from.upgrade}] = append(r.moved, moved{from.queue, waiter}), true
	} else {
		if err := w.apply(engine.Grant{Keys: texts(keys)}, r.now); err != nil {
			return err
		}
		if w.row.InFlight() { // otherwise a hold contains it
			r.take(keys)
		}
	}
	r.works = append(r.works, w)
	return nil
}

// keep writes the places of new waiters that still wait, and the next turns of their accounts. If none waits, the next ones start anew.
func (r *grants) keep(ctx context.Context, l *front) error {
	if len(l.waiters) == 0 || len(l.turns) == 0 {
		return nil
	}
	var left []store.Waiter
	for i := range l.waiters {
		if l.arrived[l.waiters[i].ID] {
			left = append(left, l.waiters[i])
		}
	}
	if len(left) > 0 {
		if err := r.tx.SetPlaces(ctx, left); err != nil {
			return err
		}
	}
	return r.tx.SetTurns(ctx, l.queue, l.upgrade, l.turns)
}
