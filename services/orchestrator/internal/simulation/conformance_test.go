package simulation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/dispatch"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// fullStore is a store with the query of the sweep.
type fullStore interface {
	dispatch.Store
	SweepStatus(ctx context.Context, now time.Time, whole bool) (store.SweepStatus, error)
}

// TestStores_Conformance_Agree runs the same calls on the store in memory and on the one in Postgres, and compares all answers.
func TestStores_Conformance_Agree(t *testing.T) {
	t.Parallel()
	db, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.Database(t, store.Migrate), MaxOpen: 4, ByIndex: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	real, err := store.New(t.Context(), db, db)
	require.NoError(t, err)
	inMemory, inPostgres := answers(t, newRAM()), answers(t, dispatch.Postgres{Store: real})
	t.Logf("%d answers", len(inPostgres))
	if n, diff := differ(inPostgres, inMemory); diff != "" {
		t.Errorf("answer %d (-Postgres +memory):\n%s", n, diff)
	}
}

// TestStores_PlantedDifference_IsFound checks that the comparison can fail.
func TestStores_PlantedDifference_IsFound(t *testing.T) {
	t.Parallel()
	right := answers(t, newRAM())
	for _, planted := range []bug{
		bugNoCompareAndSet, bugInstanceNotFreed, bugDetailsNotLeft, bugTwoOfAnInstance, bugNoLimit, bugOvertaking, bugNoPreemption,
		bugRetryOfAnOldOne, bugNothingAtAStart, bugNoSweepOfPending, bugNoSweepOfDue, bugNoSweepOfUnanswered, bugNoWakeUp, bugNoFactsNote, bugNoFactsAgain,
		bugLimitNotCounted, bugQueuesNotFound, bugUpgradesNotBehind, bugNewestFirst, bugNoReview,
		bugNoSweepOfHeld, bugFoldsUnnoted, bugFoldsTooMany, bugFoldsFromTheLast, bugFoldsUnsaved, bugRepetitionDelivered, bugDeliveredAgain, bugNoSweepOfSignals, bugSignalsReversed,
	} {
		wrong := newRAM()
		wrong.bug = planted
		if _, diff := differ(right, answers(t, wrong)); diff == "" {
			t.Errorf("bug %d is not found", planted)
		}
	}
}

// answers returns all answers of a store to a fixed sequence of calls.
func answers(t *testing.T, s fullStore) []string {
	t.Helper()
	c := &caller{t: t, s: s, p: (&pools{}).set(1, 5)[event.Update], rng: rand.New(rand.NewPCG(1, 2)), now: epoch}
	for range 1800 {
		c.do()
	}
	return c.answers
}

// differ returns the first different answer.
func differ(want, got []string) (n int, diff string) {
	for i := range min(len(want), len(got)) {
		if diff := cmp.Diff(want[i], got[i]); diff != "" {
			return i, diff
		}
	}
	return min(len(want), len(got)), cmp.Diff(len(want), len(got))
}

// caller calls a store and records its answers.
type caller struct {
	t   *testing.T
	s   fullStore
	p   *process.Process
	rng *rand.Rand
	now time.Time
	ids []string
	// unfinished are the ids of operations that had not ended when they were last read.
	unfinished []string
	answers    []string
}

func (c *caller) tell(what string, values ...any) {
	for i, v := range values {
		if err, ok := v.(error); ok {
			values[i] = fmt.Sprint(errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound))
		}
	}
	text, err := json.Marshal(values)
	require.NoError(c.t, err)
	c.answers = append(c.answers, what+" "+string(text))
}

func (c *caller) some() []string {
	var ids []string
	for range 1 + c.rng.IntN(3) {
		from := c.ids
		if c.rng.IntN(4) > 0 && len(c.unfinished) > 0 {
			from = c.unfinished
		}
		if len(from) > 0 {
			ids = append(ids, from[c.rng.IntN(len(from))])
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (c *caller) instances() []string {
	ids := []string{"i-" + string(rune('a'+c.rng.IntN(5))), "i-" + string(rune('a'+c.rng.IntN(5)))}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// seen returns the comparable parts of a row.
func seen(rows map[string]*store.Row) map[string]any {
	all := map[string]any{}
	for id, r := range rows {
		s := r.State
		var details any
		_ = json.Unmarshal(s.Details, &details)
		s.Details, s.Operation = nil, event.Operation{}
		if s.SentAt.IsZero() {
			s.SentAt = s.FirstTriedAt
		}
		all[id] = []any{s, details, r.Operation.Type, r.Operation.InstanceID, r.Version, r.Definition, r.CreatedAt}
	}
	return all
}

func (c *caller) in(f func(ctx context.Context, tx dispatch.Tx) error) error {
	ctx := c.t.Context()
	return c.s.InTx(ctx, func(tx dispatch.Tx) error { return f(ctx, tx) })
}

// do runs one random call.
func (c *caller) do() {
	ctx := c.t.Context()
	c.now = c.now.Add(time.Duration(c.rng.IntN(20)) * time.Second)
	switch n := c.rng.IntN(23); {
	case n > 19:
		c.limits()
	case n < 4:
		c.request()
	case n < 10:
		c.move()
	case n < 12:
		c.admit()
	case n == 12:
		for _, whole := range []bool{true, false} {
			status, err := c.s.SweepStatus(ctx, c.now, whole)
			c.tell("sweep status", status, err)
		}
		any, err := c.s.AnyInFlight(ctx, c.now)
		c.tell("any in flight", any, err)
	case n == 13:
		c.find()
		c.signals()
	case n == 14:
		pending, err := c.s.AnyPending(ctx)
		c.tell("any pending", pending, err)
		c.signals()
		c.tell("drop", c.s.DropInstances(ctx, c.instances()))
	case n == 15:
		sent, err := c.s.SentCommands(ctx, c.behind(), 3)
		c.tell("sent commands", sent, err)
		active, err := c.s.ActiveSince(ctx, c.now.Add(-time.Minute), c.behind(), 3)
		c.tell("active", active, err)
	case n < 18:
		c.facts()
		c.fold()
	default:
		err := c.in(func(ctx context.Context, tx dispatch.Tx) error {
			found, err := tx.LockInstances(ctx, c.instances())
			c.tell("instances", instancesOf(found), err)
			for _, id := range c.some() {
				rows, err := tx.Lock(ctx, []string{id, uuid.Max.String()})
				require.NoError(c.t, err)
				c.tell("locked", len(rows), nil)
				row := rows[id]
				newer, err := tx.Newer(ctx, []string{id, uuid.Max.String()})
				c.tell("newer", newer, err)
				unfinished, err := tx.Unfinished(ctx, row.Operation.InstanceID)
				c.tell("unfinished", len(unfinished), err)
			}
			return errRefused // rolls back
		})
		c.tell("transaction", errors.Is(err, errRefused))
	}
}

func (c *caller) behind() string {
	if len(c.ids) == 0 || c.rng.IntN(2) == 0 {
		return uuid.Nil.String()
	}
	return c.ids[c.rng.IntN(len(c.ids))]
}

func instancesOf(found map[string]*store.Instance) map[string]any {
	all := map[string]any{}
	for id, i := range found {
		var details any
		_ = json.Unmarshal(i.Details, &details)
		all[id] = []any{i.Running, i.Waiting, details, len(i.Completed), i.UnansweredAt, i.Removed, i.New}
	}
	return all
}

// request adds an operation: it starts on a free instance, and waits otherwise.
func (c *caller) request() {
	id := uuid.UUID{}
	for i := range id {
		id[i] = byte(c.rng.Uint32())
	}
	t := event.OperationTypes()[c.rng.IntN(len(event.OperationTypes()))]
	op := event.Operation{ID: id.String(), Type: t, InstanceID: c.instances()[0], Plan: event.Plan{ID: "azure", Name: "azure"}}
	op.Context.GlobalAccountID, op.Runtime.Region = accountID(c.rng.IntN(2)), "eu-"+string(rune('a'+c.rng.IntN(2)))
	err := c.in(func(ctx context.Context, tx dispatch.Tx) error {
		found, err := tx.LockInstances(ctx, []string{op.InstanceID})
		if err != nil {
			return err
		}
		i := found[op.InstanceID]
		change := &store.Change{Row: &store.Row{State: engine.New(op), Definition: c.p.Hash(), CreatedAt: c.now}}
		if i.Running != "" {
			i.Waiting++
		} else {
			state, out, err := engine.Apply(c.p, change.Row.State, engine.Start{Details: i.Details}, c.now)
			if err != nil {
				return err
			}
			change.Row.State, change.History, i.Running = state, out.History, op.ID
		}
		if err := tx.Insert(ctx, []*store.Change{change}); err != nil {
			return err
		}
		return tx.SaveInstances(ctx, []*store.Instance{i})
	})
	c.tell("request", err)
	c.ids, c.unfinished = append(c.ids, op.ID), append(c.unfinished, op.ID)
}

// move continues operations in progress. Some changes have an old version and must be rejected.
func (c *caller) move() {
	ctx := c.t.Context()
	rows, err := c.s.Load(ctx, c.some())
	c.tell("load", seen(rows), err)
	var changes []*store.Change
	changed := map[string]bool{} // instances: a batch that releases one has no other operation of it
	for _, id := range slices.Sorted(func(yield func(string) bool) {
		for id := range rows {
			if !yield(id) {
				return
			}
		}
	}) {
		row := rows[id]
		r := engine.Result{Cursor: row.Cursor, Outcome: event.OutcomeSucceeded, Worker: event.Worker{Name: "alpha"}}
		switch c.rng.IntN(5) {
		case 0:
			r.Outcome, r.Error = event.OutcomeFailed, &event.Error{Component: "x", Reason: "y", Message: "z"}
		case 1:
			r.Outcome, r.RetryAfter, r.EventKey = event.OutcomeRetry, 10*time.Second, []string{"k1", "k2"}[c.rng.IntN(2)]
		case 2:
			r.Details = json.RawMessage(`{"n":` + fmt.Sprint(c.rng.IntN(9)) + `}`)
		}
		var e engine.Event = r
		switch at := row.Position(c.p); {
		case row.Held() && c.rng.IntN(4) > 0:
			e = engine.Release{}
		case row.Held(), c.rng.IntN(20) == 0:
			e = engine.Hold{ID: holdIDs[c.rng.IntN(len(holdIDs))], Cursor: row.Cursor, Dispatch: row.Dispatch}
		case row.Limited() && c.rng.IntN(4) == 0:
			e = engine.Grant{Keys: queues[:1+c.rng.IntN(2)]}
		case row.Limited():
			continue
		case c.rng.IntN(5) == 0:
			e = engine.Park{Queue: queues[c.rng.IntN(2)], Cursor: row.Cursor, Dispatch: row.Dispatch}
		case row.AwaitsEvent() && c.rng.IntN(3) == 0:
			e = engine.Signal{Signal: event.Signal{Key: row.EventKey, Source: "/s", ID: "1", ReceivedAt: c.now, Data: json.RawMessage(`[1]`)}}
		case row.InFlight() && c.rng.IntN(10) == 0:
			e = engine.Extend{Cursor: row.AwaitedCursor(), For: 10 * time.Minute}
		case row.Waiting() && row.Cursor%3 == 0:
			e = engine.SkipStep{Step: at.Step, By: "me"}
		case row.Waiting():
			e = engine.Due{WorkerAlive: true}
		}
		state, out, err := engine.Apply(c.p, row.State, e, c.now)
		if err != nil || !out.Changed || changed[row.Operation.InstanceID] {
			continue
		}
		changed[row.Operation.InstanceID] = true
		next := *row
		next.State = state
		change := &store.Change{Row: &next, History: out.History, DetailsChanged: string(state.Details) != string(row.Details)}
		if c.rng.IntN(4) == 0 {
			after := row.Cursor
			change.FactsAfter = &after
		}
		if out.Finished {
			change.Release = store.NewRelease(&next.State, func() []string { return next.CompletedSteps(c.p) })
		}
		if c.rng.IntN(6) == 0 {
			next.Version-- // as if another orchestrator had changed the row
		}
		changes = append(changes, change)
	}
	var written map[string]int
	if c.rng.IntN(2) == 0 {
		written, err = c.s.Write(ctx, changes)
	} else {
		err = c.in(func(ctx context.Context, tx dispatch.Tx) (err error) {
			written, err = tx.Write(ctx, changes)
			return err
		})
	}
	if len(written) == 0 {
		written = nil
	}
	c.tell("write", written, err)
	for _, change := range changes {
		c.tell("version", change.Row.Version)
	}
	rows, err = c.s.Load(ctx, c.some())
	c.tell("load", seen(rows), err)
	c.unfinished = slices.DeleteFunc(c.unfinished, func(id string) bool { return rows[id] != nil && rows[id].Status.Final() })
}

// holdIDs are the ids of holds.
var holdIDs = []string{operationID(101), operationID(102)}

// admit starts an operation that may start.
func (c *caller) admit() {
	of := c.rng.IntN(2) == 0
	err := c.in(func(ctx context.Context, tx dispatch.Tx) error {
		require.NoError(c.t, tx.LockAdmission(ctx))
		running, err := tx.Running(ctx)
		c.tell("running", runningOf(running), err)
		except := c.some()
		w := limit.Window{Upgrades: len(c.answers)%3 == 0, Most: 4}
		waiting, err := tx.PendingQueues(ctx, w, except)
		c.tell("queues", waiting, err)
		if len(waiting) > 0 {
			w.After = waiting[0].Queue
			behind, err := tx.PendingQueues(ctx, w, except)
			c.tell("queues behind the first one", behind, err)
		}
		var found []store.Candidate
		if of {
			found, err = tx.PendingOf(ctx, c.instances())
		} else {
			var turns []limit.Turn
			for _, w := range waiting {
				turns = append(turns, limit.Turn{Queue: w.Queue, N: 1 + c.rng.IntN(2)})
			}
			slices.Reverse(turns)
			found, err = tx.Take(ctx, turns, except, 2)
		}
		c.tell("candidates", len(found), found, err)
		if len(found) == 0 {
			return err
		}
		rows, err := tx.Load(ctx, []string{found[0].ID})
		if err != nil {
			return err
		}
		instances, err := tx.LockInstances(ctx, []string{found[0].InstanceID})
		if err != nil {
			return err
		}
		row, i := rows[found[0].ID], instances[found[0].InstanceID]
		state, out, err := engine.Apply(c.p, row.State, engine.Start{Details: i.Details}, c.now)
		if err != nil {
			return err
		}
		row.State, i.Running, i.Waiting = state, row.Operation.ID, i.Waiting-1
		written, err := tx.Write(ctx, []*store.Change{{Row: row, History: out.History, DetailsChanged: true, FactsAfter: new(int64)}})
		c.tell("write", written, err)
		return tx.SaveInstances(ctx, []*store.Instance{i})
	})
	c.tell("admit", err)
}

// runningOf returns the comparable form of the numbers of operations in progress.
func runningOf(running map[limit.Queue]int) map[string]int {
	all := map[string]int{}
	for q, n := range running {
		all[fmt.Sprint(q)] = n
	}
	return all
}

// find queries due operations. The order is compared only where Postgres guarantees it.
func (c *caller) find() {
	err := c.in(func(ctx context.Context, tx dispatch.Tx) error {
		due, err := tx.Due(ctx, c.now, 100)
		slices.Sort(due)
		c.tell("due", len(due), due, err)
		unanswered, err := tx.Unanswered(ctx, c.now, 100)
		slices.Sort(unanswered)
		c.tell("unanswered", len(unanswered), unanswered, err)
		inFlight, err := tx.InFlight(ctx, c.now.Add(time.Hour), c.behind(), 2)
		c.tell("in flight", len(inFlight), inFlight, err)
		held, err := tx.Releasable(ctx, holdIDs[:c.rng.IntN(2)], 100)
		slices.Sort(held)
		c.tell("held", len(held), held, err)
		return err
	})
	c.tell("find", err)
}

// queues are keys of limits.
var queues = []string{"one", "two/ga-1"}

// limits gives waiters of a queue places, lets one change its queue, and takes turns and rates.
func (c *caller) limits() {
	bounded, err := c.s.Bounded(c.t.Context(), c.behind(), 3)
	c.tell("bounded", len(bounded), bounded, err)
	q, upgrade := c.rng.IntN(2), c.rng.IntN(2) == 0
	err = c.in(func(ctx context.Context, tx dispatch.Tx) error {
		require.NoError(c.t, tx.LockLimits(ctx))
		waitedFor, err := tx.WaitedFor(ctx)
		c.tell("waited for", len(waitedFor), waitedFor, err)
		queued, err := tx.Queued(ctx, queues[q], upgrade)
		c.tell("queued", queued, err)
		inUse, err := tx.InUse(ctx)
		c.tell("in use", inUse, err)
		locked, err := tx.LockAll(ctx, c.some())
		c.tell("locked", locked, err)
		rates, err := tx.Rates(ctx, c.now)
		c.tell("rates", rates, err)
		if err := tx.SetRates(ctx, map[string]time.Time{queues[q]: c.now.Add(time.Minute)}); err != nil {
			return err
		}
		return c.turns(ctx, tx, queues[q], queues[1-q], upgrade)
	})
	c.tell("limits", err)
}

// turns gives waiters that have arrived their turns, and moves the first one of the queue to another.
func (c *caller) turns(ctx context.Context, tx dispatch.Tx, queue, other string, upgrade bool) error {
	accounts := []string{accountID(0), accountID(1)}
	next, highest, err := tx.Turns(ctx, queue, upgrade, accounts[:1+c.rng.IntN(2)])
	c.tell("turns", next, highest, err)
	arrived, err := tx.Arrived(ctx, queue, upgrade, 3)
	c.tell("arrived", waitersOf(arrived), err)
	head, err := tx.Head(ctx, queue, upgrade, store.Waiter{ID: uuid.Nil.String(), Turn: float64(c.rng.IntN(3))}, 3)
	c.tell("head", waitersOf(head), err)
	// The store in memory shows what a transaction writes after its end.
	for i := range arrived {
		arrived[i].Turn = float64(c.rng.IntN(9)) / 2
	}
	if err := tx.SetPlaces(ctx, arrived); err != nil {
		return err
	}
	if err := tx.SetTurns(ctx, queue, upgrade, map[string]float64{accounts[c.rng.IntN(2)]: float64(c.rng.IntN(9))}); err != nil {
		return err
	}
	if len(head) > 0 && c.rng.IntN(2) == 0 {
		rows, err := tx.Load(ctx, []string{head[0].ID})
		if err != nil {
			return err
		}
		row := rows[head[0].ID]
		state, _, err := engine.Apply(c.p, row.State, engine.Park{Queue: other}, c.now)
		if err != nil {
			return err
		}
		row.State = state
		written, err := tx.Write(ctx, []*store.Change{{Row: row}})
		c.tell("write", written, err)
		if err := tx.Move(ctx, queue, head[0]); err != nil {
			return err
		}
	}
	if c.rng.IntN(4) == 0 {
		return tx.DropTurns(ctx, c.now)
	}
	return nil
}

// waitersOf returns the comparable form of waiters. The order of their former queues is that of the database.
func waitersOf(waiters []store.Waiter) (comparable []any) {
	for _, w := range waiters {
		slices.Sort(w.Before)
		comparable = append(comparable, w.ID, w.GlobalAccount, w.Turn, len(w.Before), w.Before)
	}
	return comparable
}

// signals adds events, and delivers some of those that have come.
func (c *caller) signals() {
	ctx := c.t.Context()
	keys, err := c.s.SignalledKeys(ctx, 10)
	slices.Sort(keys)
	c.tell("signalled keys", keys, err)
	var signals []event.Signal
	for range c.rng.IntN(3) {
		signals = append(signals, event.Signal{
			Key: fmt.Sprint("k", c.rng.IntN(3)), Source: "/s", ID: fmt.Sprint(c.rng.IntN(40)), ReceivedAt: c.now, Data: json.RawMessage(`{"a": "<1>"}`),
		})
	}
	added, err := c.s.AddSignals(ctx, signals)
	c.tell("signals", added, err)
	err = c.in(func(ctx context.Context, tx dispatch.Tx) error {
		keys := []string{"k1", "k2"}[:1+c.rng.IntN(2)]
		signalled, err := tx.Signalled(ctx, keys)
		var comparable []any // the numbers have gaps in Postgres
		for _, s := range signalled {
			comparable = append(comparable, s.OperationID, s.Signal)
		}
		c.tell("signalled", len(signalled), comparable, err)
		if c.rng.IntN(2) == 0 && len(signalled) > 0 {
			c.tell("delivered", tx.SignalsDelivered(ctx, signalled, c.now))
		}
		return err
	})
	c.tell("deliver", err)
}

func (c *caller) facts() {
	ctx := c.t.Context()
	found, err := c.s.Unpublished(ctx, c.now.Add(-time.Hour), 100)
	slices.SortFunc(found, func(a, b store.FactRange) int { return cmpText(a.OperationID, b.OperationID) })
	c.tell("unpublished", len(found), found, err)
	var ranges []store.FactRange
	for _, id := range c.some() {
		ranges = append(ranges, store.FactRange{OperationID: id, After: int64(c.rng.IntN(4)), Through: int64(c.rng.IntN(8))})
	}
	if len(found) > 0 {
		one := found[c.rng.IntN(len(found))]
		one.Through = one.After + int64(c.rng.IntN(4))
		ranges = []store.FactRange{one}
	}
	lines, err := c.s.EntriesAfter(ctx, ranges, 2)
	c.tell("lines", inUTC(lines), err)
	if c.rng.IntN(2) == 0 {
		c.tell("facts published", c.s.FactsPublished(ctx, ranges))
	} else {
		c.tell("facts not published", c.s.FactsUnpublished(ctx, ranges))
	}
}

// fold folds the first two entries of a few histories.
func (c *caller) fold() {
	through := map[string]int64{}
	for _, id := range c.some() {
		through[id] = int64(c.rng.IntN(40))
	}
	err := c.in(func(ctx context.Context, tx dispatch.Tx) error {
		found, ok, err := tx.Foldable(ctx, through, 30)
		c.tell("foldable", ok, inUTC(found), err)
		var folds []store.Fold
		for _, id := range slices.Sorted(maps.Keys(found)) {
			if len(found[id]) < 2 {
				continue
			}
			// The stores do not check that the entries have the same result.
			first, e := found[id][0], found[id][1]
			e.Saved = map[string]engine.Saved{"alpha": {Before: map[string]json.RawMessage{"n": json.RawMessage("1")}, Large: []string{"x"}}}
			e.Folded = &engine.Folded{Tries: first.Tries() + e.Tries(), Cursor: first.Cursor, StageAttempt: 1, StepAttempt: 2, StartedAt: first.StartedAt}
			folds = append(folds, store.Fold{OperationID: id, Entries: []engine.Entry{e}, Removed: []int64{first.Cursor}})
		}
		return tx.FoldHistories(ctx, folds)
	})
	c.tell("fold", err)
}

// inUTC returns the stored parts of entries.
func inUTC(entries map[string][]engine.Entry) map[string][]engine.Entry {
	for _, l := range entries {
		for i := range l {
			l[i].Took = 0 // it is not stored
			l[i].StartedAt, l[i].FinishedAt = l[i].StartedAt.UTC(), l[i].FinishedAt.UTC()
		}
	}
	return entries
}

func cmpText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
