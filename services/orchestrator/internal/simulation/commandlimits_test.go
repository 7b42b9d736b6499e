package simulation_test

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// bounds are limits as an orchestrator knows them. since is the commit before which it has read them.
type bounds struct {
	version int64
	set     *limit.Set
	since   int
}

// read makes an orchestrator read the limits.
func (o *orchestrator) read() {
	if o.bounds.version == o.w.bounds.version && o.bounds.set != nil {
		return
	}
	o.bounds = o.w.bounds
	o.bounds.since = o.w.commits
	o.dispatch.WakeGrants()
}

// bound changes the limits, or an orchestrator reads them.
func (w *world) bound(c choice) {
	if c.a%4 < 2 {
		w.orchestrators[c.b%orchestrators].read()
		return
	}
	set := &limit.Set{Weights: w.limits.Weights, Limits: slices.Clone(w.limits.Limits)}
	if c.c%4 > 0 {
		t := event.OperationTypes()[c.b%5]
		stage := w.set[t].Stages[int(c.c>>2)%len(w.set[t].Stages)]
		step := stage.Steps[int(c.d)%len(stage.Steps)]
		scope := [...]limit.Scope{{}, {limit.Worker: {step.Worker}}, {limit.Type: {string(t)}}, {limit.Step: {step.Name}}}[c.b/8%4]
		set.Limits = append(set.Limits, limit.Limit{Name: "one", Scope: scope, Commands: 1 + int(c.d>>4%2)})
	}
	if c.c%4 > 1 {
		l := limit.Limit{Name: "two", Each: limit.GlobalAccount, Commands: 1}
		if c.c%4 == 3 {
			l.Rate = limit.Rate{Commands: 1 + int(c.d>>6%4), Per: time.Second}
		}
		set.Limits = append(set.Limits, l)
	}
	w.bounds = bounds{version: w.bounds.version + 1, set: set}
	w.count(countLimits)
	w.trace("limits %d apply: %+v", w.bounds.version, set.Limits)
}

// grants is a round of an orchestrator.
func (w *world) grants(ctx context.Context, o *orchestrator, t *task) {
	next, err := o.dispatch.Grant(ctx)
	if o.nextGrant = next; err == nil && w.calm && !t.faulted {
		w.checkRoom(o)
	}
}

// checkRoom checks that no command waits although its limits have had room in several rounds.
func (w *world) checkRoom(o *orchestrator) {
	used := map[string]int{}
	for _, op := range w.operations {
		for _, key := range op.row.Granted {
			used[key]++
		}
	}
	for _, op := range w.operations {
		if !op.row.Limited() {
			op.model.roomSeen = 0
			continue
		}
		full := slices.ContainsFunc(op.keys(o.bounds.set), func(k limit.Key) bool {
			return used[k.String()] >= k.Limit.Commands || k.Limit.Rate.Commands > 0
		})
		if op.model.roomSeen++; full || !op.row.DueAt.After(w.now) { // the sweep ends it at its deadline
			op.model.roomSeen = 0
		}
		if op.model.roomSeen > 4 {
			w.violate("operation %d waits for the limit %s although its limits have room", op.n, op.row.Queue)
		}
	}
}

// keys returns the limits that the decided command of an operation needs room in.
func (op *operation) keys(set *limit.Set) []limit.Key {
	if set == nil {
		return nil
	}
	return set.OfCommand(&op.row.Operation, engine.Next(op.p, &op.row.State))
}

// limited moves the budgets of the model by the time for which a command has waited.
func (m *model) limited(s *engine.State, now time.Time) {
	if s.Queue != "" {
		m.moveTries(max(0, now.Sub(m.limitedSince)))
	}
}

// checkLimit checks the transitions into and out of a queue.
func (w *world) checkLimit(op *operation, before *engine.State, e engine.Event, next *engine.State, effects *engine.Effects, at time.Time, known bounds) {
	m := &op.model
	switch e.(type) {
	case engine.Park:
		if !before.Limited() {
			m.limitedSince = at
			w.count(countLimited)
		}
		if before.Queue != next.Queue {
			m.overtaken = 0
		}
		if !next.Limited() || !next.LimitedSince.Equal(m.limitedSince) || next.Dispatch != before.Dispatch {
			w.violate("limited by %q since %s, want since %s", next.Queue, next.LimitedSince, m.limitedSince)
		}
	case engine.Grant:
		m.countedUnder, m.countedAt = known.version, w.commits
		if before.InFlight() {
			w.count(countAdopted)
			break
		}
		w.count(countGranted)
		step := op.p.Stages[next.Stage].Steps[next.Step].Name
		if t := m.tries[step]; !next.FirstTriedAt.Equal(t.first) {
			w.violate("after a limit %s was first tried at %s, want %s", step, next.FirstTriedAt, t.first)
		}
		if slices.ContainsFunc(op.keys(known.set), func(k limit.Key) bool { return k.String() == before.Queue }) { // otherwise the limit has gone
			w.checkTurn(op, before, at)
		}
	default:
		if next.Limited() && !before.Limited() {
			w.violate("%T: the operation is limited", e)
		}
		if same := next.InFlight() && before.InFlight() && next.AwaitedCursor() == before.AwaitedCursor(); same && !slices.Equal(next.Granted, before.Granted) {
			w.violate("%T: a command that counts in %v counts in %v", e, before.Granted, next.Granted)
		}
		if effects.Dispatch && len(next.Granted) == 0 {
			m.countedUnder, m.countedAt = -1, w.commits
		}
	}
	if len(next.Granted) > 0 && !next.InFlight() {
		w.violate("%T: the operation counts in %v and has no command in flight", e, next.Granted)
	}
}

// checkSent checks that a command in the scope of a limit is sent only if the limit has room. The commands in flight that count are those
// that orchestrators with the same limits have sent, and those that were sent before the orchestrator has read the limits.
func (w *world) checkSent(op *operation, last *transition) {
	if !last.next.InFlight() || !last.effects.Dispatch || last.bounds.set == nil {
		return
	}
	if due, ok := last.event.(engine.Due); ok && !due.LostBefore.IsZero() && !due.ResultsOnly {
		return // it was in flight before, and keeps its identity
	}
	keys := op.keys(last.bounds.set)
	_, granted := last.event.(engine.Grant)
	if len(keys) > 0 && len(last.next.Granted) == 0 {
		w.violate("a command in the scope of the limit %s is sent without room in it", keys[0])
	}
	if !granted {
		return
	}
	for _, k := range keys {
		if k.Limit.Commands == 0 {
			continue
		}
		n := 0
		for _, other := range w.operations {
			m := &other.model
			if !other.row.InFlight() || m.countedUnder != last.bounds.version && m.countedAt > last.bounds.since {
				continue
			}
			if slices.ContainsFunc(other.keys(last.bounds.set), func(o limit.Key) bool { return o.String() == k.String() }) {
				n++
			}
		}
		if n > k.Limit.Commands {
			w.violate("%d commands are in flight in the limit %s, at most %d may be", n, k, k.Limit.Commands)
		}
	}
}

// checkTurn checks that a granted command does not overtake others of its queue too often.
func (w *world) checkTurn(op *operation, before *engine.State, at time.Time) {
	for _, other := range w.operations {
		if other == op || other.row.Queue != before.Queue || !at.Before(other.row.Deadline) {
			continue
		}
		switch mine, others := limit.IsUpgrade(op.kind), limit.IsUpgrade(other.kind); {
		case mine && !others:
			w.violate("an upgrade is sent before operation %d, which waits for the limit %s", other.n, before.Queue)
		case mine == others && op.instance%accounts != other.instance%accounts:
			if other.model.overtaken++; other.model.overtaken > 3*3+2 {
				w.violate("operation %d is overtaken %d times in the queue of the limit %s", other.n, other.model.overtaken, before.Queue)
			}
		}
	}
}

// The store in memory: the places of waiters, the turns of accounts, and the rates.

type line struct {
	queue   string
	upgrade bool
}

func (tx *ramTx) LockLimits(context.Context) error { return nil }

func (tx *ramTx) LockAll(_ context.Context, ids []string) ([]string, error) {
	return tx.ids(len(ids), func(row *store.Row) bool { return slices.Contains(ids, row.Operation.ID) }, byID), nil
}

func (tx *ramTx) InUse(context.Context) (map[string]int, error) {
	used := map[string]int{}
	for _, s := range tx.rows {
		for _, key := range s.row.Granted {
			if tx.bug != bugLimitNotCounted {
				used[key]++
			}
		}
	}
	return used, nil
}

func (tx *ramTx) WaitedFor(context.Context) (queues []string, err error) {
	for _, s := range tx.rows {
		if s.row.Limited() && tx.bug != bugQueuesNotFound {
			queues = append(queues, s.row.Queue)
		}
	}
	slices.Sort(queues)
	return slices.Compact(queues), nil
}

func (tx *ramTx) Queued(_ context.Context, queue string, upgrade bool) (bool, error) {
	return slices.ContainsFunc(tx.rows, func(s *stored) bool {
		return s.row.Queue == queue && (upgrade || !limit.IsUpgrade(s.row.Operation.Type))
	}), nil
}

// waiters returns waiters of a line that match, in order.
func (tx *ramTx) waiters(l line, most int, matches func(s *stored) bool) (found []store.Waiter) {
	if tx.bug == bugUpgradesNotBehind {
		l.upgrade = !l.upgrade
	}
	for _, s := range tx.rows {
		if s.row.Queue != l.queue || !matches(s) || limit.IsUpgrade(s.row.Operation.Type) != l.upgrade {
			continue
		}
		w := store.Waiter{ID: s.row.Operation.ID, GlobalAccount: s.row.Operation.Context.GlobalAccountID, Turn: s.turn}
		for queue := range s.turns {
			w.Before = append(w.Before, queue)
		}
		slices.Sort(w.Before)
		found = append(found, w)
	}
	slices.SortFunc(found, compareWaiters)
	return found[:min(most, len(found))]
}

func compareWaiters(a, b store.Waiter) int {
	if a.Turn < b.Turn || a.Turn == b.Turn && a.ID < b.ID {
		return -1
	}
	return 1
}

func (tx *ramTx) Head(_ context.Context, queue string, upgrade bool, after store.Waiter, limit int) ([]store.Waiter, error) {
	found := tx.waiters(line{queue, upgrade}, limit, func(s *stored) bool {
		return s.placed && compareWaiters(after, store.Waiter{ID: s.row.Operation.ID, Turn: s.turn}) < 0
	})
	for i := range found {
		found[i].GlobalAccount = ""
	}
	return found, nil
}

func (tx *ramTx) Arrived(_ context.Context, queue string, upgrade bool, limit int) ([]store.Waiter, error) {
	found := tx.waiters(line{queue, upgrade}, math.MaxInt, func(s *stored) bool { return !s.placed })
	slices.SortFunc(found, func(a, b store.Waiter) int { return strings.Compare(a.ID, b.ID) })
	return found[:min(limit, len(found))], nil
}

func (tx *ramTx) Turns(_ context.Context, queue string, upgrade bool, accounts []string) (map[string]float64, float64, error) {
	next, highest := map[string]float64{}, 0.0
	for account, turn := range tx.turns[line{queue, upgrade}] {
		highest = max(highest, turn)
		if slices.Contains(accounts, account) {
			next[account] = turn
		}
	}
	return next, highest, nil
}

func (tx *ramTx) SetPlaces(_ context.Context, waiters []store.Waiter) error {
	for _, w := range waiters {
		s := tx.byID[w.ID]
		tx.writes = append(tx.writes, func() {
			s.placed, s.turn = true, w.Turn
			if tx.bug == bugNewestFirst {
				s.turn = -w.Turn
			}
		})
	}
	return nil
}

func (tx *ramTx) SetTurns(_ context.Context, queue string, upgrade bool, next map[string]float64) error {
	tx.writes = append(tx.writes, func() {
		l := line{queue, upgrade}
		if tx.turns[l] == nil {
			tx.turns[l] = map[string]float64{}
		}
		maps.Copy(tx.turns[l], next)
	})
	return nil
}

func (tx *ramTx) Move(_ context.Context, from string, w store.Waiter) error {
	s := tx.byID[w.ID]
	tx.writes = append(tx.writes, func() {
		if turn, ok := s.turns[s.row.Queue]; ok {
			s.placed, s.turn = true, turn
		}
		turns := map[string]float64{from: w.Turn}
		for queue, turn := range s.turns {
			if queue != from {
				turns[queue] = turn
			}
		}
		s.turns = turns
	})
	return nil
}

func (tx *ramTx) DropTurns(_ context.Context, now time.Time) error {
	tx.writes = append(tx.writes, func() {
		for l, accounts := range tx.turns {
			first := math.Inf(1)
			for _, w := range tx.waiters(l, math.MaxInt, func(s *stored) bool { return s.placed }) {
				first = min(first, w.Turn)
			}
			for account, turn := range accounts {
				if turn <= first {
					delete(accounts, account)
				}
			}
		}
		for key, next := range tx.rates {
			if !next.After(now) {
				delete(tx.rates, key)
			}
		}
	})
	return nil
}

func (tx *ramTx) Rates(_ context.Context, now time.Time) (map[string]time.Time, error) {
	found := map[string]time.Time{}
	for key, next := range tx.rates {
		if next.After(now) {
			found[key] = next
		}
	}
	return found, nil
}

func (tx *ramTx) SetRates(_ context.Context, next map[string]time.Time) error {
	tx.writes = append(tx.writes, func() {
		maps.Copy(tx.rates, next)
	})
	return nil
}

func (r *ram) Bounded(_ context.Context, after string, limit int) (found []store.Bounded, err error) {
	if r.access(callLoad) == faultFails {
		return nil, errAway
	}
	if r.bug == bugNoReview {
		return nil, nil
	}
	for _, id := range r.ids(limit, func(row *store.Row) bool {
		return row.Status == event.InProgress && (row.Limited() || !row.ExecuteBefore.IsZero()) && row.Operation.ID > after
	}, byID) {
		row := &r.byID[id].row
		op := &row.Operation
		found = append(found, store.Bounded{
			Operation: event.Operation{
				ID: id, Type: op.Type, Plan: event.Plan{ID: op.Plan.ID, Name: op.Plan.Name}, Context: event.Context{GlobalAccountID: op.Context.GlobalAccountID},
				Runtime: event.Runtime{Region: op.Runtime.Region},
			},
			Definition: row.Definition, Stage: row.Stage, Step: row.Step, Queue: row.Queue, Granted: row.Granted,
		})
	}
	return found, nil
}

// limitBugs are bugs with limits.
func limitBugs() []planted {
	granted := func(change func(t *spoiled)) func(t *spoiled) {
		return func(t *spoiled) {
			if _, ok := t.event.(engine.Grant); ok && t.before.Limited() {
				change(t)
			}
		}
	}
	return []planted{
		{name: "the commands in flight are not counted", want: "commands are in flight in the limit", bug: bugLimitNotCounted},
		{name: "a result sends the next command without room", want: "is sent without room", bug: bugNoLimitAtDecision},
		{name: "commands in flight do not count in a new limit", want: "commands are in flight in the limit", bug: bugNoReview},
		{name: "the sweep does not find the queues of limits", want: "although its limits have room", bug: bugQueuesNotFound},
		{name: "upgrades do not wait behind customers", want: "an upgrade is sent before", bug: bugUpgradesNotBehind},
		{name: "the newest command of a queue is first", first: 390, want: "is overtaken", bug: bugNewestFirst},
		{name: "the deadline stops while a command waits", want: "the deadline is", decided: granted(func(t *spoiled) {
			t.next.Deadline = t.next.Deadline.Add(max(time.Second, t.now.Sub(t.before.LimitedSince)))
		})},
		{name: "the budget runs while a command waits", want: "was first tried at", decided: granted(func(t *spoiled) { t.next.FirstTriedAt = t.before.FirstTriedAt })},
		{name: "a granted command is not sent", want: "dispatch is false", decided: granted(func(t *spoiled) { t.out.Dispatch = false })},
		{name: "a granted command does not count", want: "is sent without room", decided: granted(func(t *spoiled) { t.next.Granted = nil })},
		{name: "a command that is sent again loses its room", decided: func(t *spoiled) {
			if _, ok := t.event.(engine.Due); ok && t.next.InFlight() && t.before.InFlight() {
				t.next.Granted = nil
			}
		}},
		{name: "the room of an answered command is not freed", want: "has no command in flight", decided: func(t *spoiled) {
			if _, ok := t.event.(engine.Result); ok && len(t.before.Granted) > 0 && !t.next.InFlight() {
				t.next.Granted = t.before.Granted
			}
		}},
		{name: "a limited command is due at its old time", want: "waits for a limit", decided: func(t *spoiled) {
			if _, ok := t.event.(engine.Park); ok {
				t.next.DueAt = t.now.Add(time.Second)
			}
		}},
	}
}
