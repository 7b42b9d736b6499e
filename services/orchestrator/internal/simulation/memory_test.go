package simulation_test

import (
	"cmp"
	"context"
	"database/sql/driver"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/batch"
	"github.com/kyma-project/keb/services/orchestrator/internal/dispatch"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// errAway is the error of a lost connection: the call may have been executed.
var errAway = driver.ErrBadConn

// ram is a store in memory. A transaction is atomic: nothing happens between its statements, and a rollback discards its pending
// writes. TestStores_Conformance_Agree compares it with the store in Postgres.
type ram struct {
	rows      []*stored // in order of arrival
	byID      map[string]*stored
	instances map[string]*store.Instance
	arrived   int64
	marks     store.Marks     // of all orchestrators
	signals   []*storedSignal // in order of arrival
	// turns are the next turns of global accounts, and rates the times of the next commands, by limit.
	turns map[line]map[string]float64
	rates map[string]time.Time

	// at is called before each call, and returns its fault; committed is called for each committed change, with the previous
	// row, and done after each transaction. All may be nil.
	at        func(call call) fault
	committed func(s *stored, before *store.Row, c *store.Change)
	done      func()
	// conflict is called for each change whose row has another version.
	conflict func(id string)
	// seen may replace a row that was read, and early is called with changes before they are written.
	seen  func(row *store.Row) *store.Row
	early func(changes []*store.Change)
	// execution returns the execution limit of the command in flight.
	execution func(row *store.Row) time.Duration
	// foldable is called with the cursor up to which a history may be folded, and folded with the number of entries that a fold has removed.
	foldable func(s *stored, through int64)
	folded   func(entries int)
	// bug is a planted bug.
	bug bug
}

// stored is an operation with its history.
type stored struct {
	row        store.Row
	history    []engine.Entry
	factsAfter *int64
	// turn is the place in the queue of a limit, if placed; turns are places in other queues.
	placed bool
	turn   float64
	turns  map[string]float64
}

var _ dispatch.Store = (*ram)(nil)

func newRAM() *ram {
	return &ram{byID: map[string]*stored{}, instances: map[string]*store.Instance{}, turns: map[line]map[string]float64{}, rates: map[string]time.Time{}}
}

func (r *ram) access(c call) fault {
	if r.at == nil {
		return faultNone
	}
	return r.at(c)
}

func (r *ram) ended() {
	if r.done != nil {
		r.done()
	}
}

// ramTx is a transaction.
type ramTx struct {
	*ram
	writes []func()
}

func (r *ram) InTx(_ context.Context, f func(tx dispatch.Tx) error) error {
	fault := r.access(callTransaction)
	if fault == faultFails {
		return errAway
	}
	tx := &ramTx{ram: r}
	if err := f(tx); err != nil {
		return err
	}
	for _, write := range tx.writes {
		write()
	}
	r.ended()
	if fault == faultSilent {
		return errAway
	}
	return nil
}

func (r *ram) read(ids []string) map[string]*store.Row {
	found := make(map[string]*store.Row, len(ids))
	for _, id := range ids {
		if s := r.byID[id]; s != nil {
			row := s.row
			if found[id] = &row; r.seen != nil {
				found[id] = r.seen(&row)
			}
		}
	}
	return found
}

func (r *ram) Load(_ context.Context, ids []string) (map[string]*store.Row, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	if r.access(callLoad) == faultFails {
		return nil, errAway
	}
	return r.read(ids), nil
}

func (r *ram) Write(_ context.Context, changes []*store.Change) (map[string]int, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	fault := r.access(callWrite)
	if fault == faultFails {
		return nil, errAway
	}
	if r.early != nil {
		r.early(changes)
	}
	tx := &ramTx{ram: r}
	written := tx.prepare(changes)
	for _, write := range tx.writes {
		write()
	}
	r.ended()
	if fault == faultSilent {
		return nil, errAway
	}
	for _, c := range changes {
		if _, ok := written[c.Row.Operation.ID]; ok {
			c.Row.Version++
		}
	}
	return written, nil
}

// prepare queues the writes, and returns the number of operations that wait for each released instance.
func (tx *ramTx) prepare(changes []*store.Change) map[string]int {
	written := make(map[string]int, len(changes))
	for _, c := range changes {
		id := c.Row.Operation.ID
		s := tx.byID[id]
		if s == nil || s.row.Version != c.Row.Version && tx.bug != bugNoCompareAndSet {
			if tx.conflict != nil {
				tx.conflict(id)
			}
			continue
		}
		waiting := 0
		if i := tx.instances[c.Row.Operation.InstanceID]; c.Release != nil && i != nil && tx.bug != bugNoWakeUp {
			waiting = i.Waiting
		}
		written[id] = waiting
		next := *c.Row
		tx.writes = append(tx.writes, func() { tx.change(s, &next, c) })
	}
	return written
}

func (r *ram) change(s *stored, next *store.Row, c *store.Change) {
	before := s.row
	next.Version, next.Arrived, next.CreatedAt = before.Version+1, before.Arrived, before.CreatedAt
	next.Operation, next.Definition, next.TraceParent = before.Operation, before.Definition, before.TraceParent
	if !c.DetailsChanged {
		next.Details = before.Details
	}
	s.row = *next
	if next.Queue != before.Queue {
		s.placed, s.turn = false, 0
	}
	if next.Queue == "" {
		s.turns = nil
	}
	s.history = append(s.history, c.History...)
	if r.bug != bugNoFactsNote {
		s.note(c.FactsAfter)
	}
	if i := r.instances[s.row.Operation.InstanceID]; c.Release != nil && i != nil {
		if i.Running == s.row.Operation.ID && r.bug != bugInstanceNotFreed {
			i.Running = ""
		}
		i.Completed, i.UnansweredAt = c.Release.Completed, s.row.UnansweredAt
		i.Removed = c.Release.Removed
		if c.Release.Gone {
			i.UnansweredAt = time.Time{}
		}
		if i.Details = s.row.Details; c.Release.Gone || r.bug == bugDetailsNotLeft {
			i.Details = nil
		}
	}
	if r.committed != nil {
		r.committed(s, &before, c)
	}
}

// note keeps the lowest cursor after which facts may not be published.
func (s *stored) note(after *int64) {
	if after != nil && (s.factsAfter == nil || *after < *s.factsAfter) {
		at := *after
		s.factsAfter = &at
	}
}

func (tx *ramTx) Load(_ context.Context, ids []string) (map[string]*store.Row, error) {
	return tx.read(ids), nil
}

func (tx *ramTx) Lock(_ context.Context, ids []string) (map[string]*store.Row, error) {
	return tx.read(ids), nil
}

func (tx *ramTx) Unfinished(_ context.Context, instanceID string) (found []*store.Row, err error) {
	for _, s := range tx.rows {
		if s.row.Operation.InstanceID == instanceID && !s.row.Status.Final() && tx.bug != bugNoPreemption {
			row := s.row
			found = append(found, &row)
		}
	}
	return found, nil
}

func (tx *ramTx) Write(_ context.Context, changes []*store.Change) (map[string]int, error) {
	written := tx.prepare(changes)
	for _, c := range changes {
		if _, ok := written[c.Row.Operation.ID]; ok {
			c.Row.Version++
		}
	}
	return written, nil
}

func (tx *ramTx) Insert(_ context.Context, added []*store.Change) error {
	for _, c := range added {
		tx.arrived++
		next := *c.Row
		next.Version, next.Arrived = 0, tx.arrived
		tx.writes = append(tx.writes, func() {
			s := &stored{row: next, history: slices.Clone(c.History)}
			s.note(c.FactsAfter)
			tx.rows, tx.byID[next.Operation.ID] = append(tx.rows, s), s
			if tx.committed != nil {
				tx.committed(s, nil, c)
			}
		})
	}
	return nil
}

func (tx *ramTx) Archived(context.Context, []string) ([]string, error) { return nil, nil }

func (tx *ramTx) ReopenMembers(context.Context, []string, time.Time) error { return nil }

func (tx *ramTx) RecordBatch(context.Context, string, []batch.Member, time.Time, time.Time) error {
	return nil
}

func (tx *ramTx) Newer(_ context.Context, ids []string) (map[string]string, error) {
	newer := map[string]string{}
	for _, id := range ids {
		if tx.byID[id] == nil {
			continue
		}
		o := &tx.byID[id].row
		for _, s := range tx.rows {
			n := &s.row
			counts := n.Status != event.Cancelled || n.Operation.Type == event.Update && o.Operation.Type == event.Update
			if n.Operation.InstanceID == o.Operation.InstanceID && n.Arrived > o.Arrived && counts && tx.bug != bugRetryOfAnOldOne {
				newer[id] = n.Operation.ID
				break
			}
		}
	}
	return newer, nil
}

func (tx *ramTx) LockInstances(_ context.Context, ids []string) (map[string]*store.Instance, error) {
	found := make(map[string]*store.Instance, len(ids))
	for _, id := range ids {
		found[id] = &store.Instance{ID: id, New: true}
		if i := tx.instances[id]; i != nil {
			one := *i
			if found[id] = &one; tx.bug == bugTwoOfAnInstance {
				one.Running = ""
			}
		}
	}
	return found, nil
}

func (tx *ramTx) SaveInstances(_ context.Context, instances []*store.Instance) error {
	for _, i := range instances {
		if tx.instances[i.ID] != nil == i.New {
			return store.ErrConflict
		}
		one := *i
		one.New = false
		tx.writes = append(tx.writes, func() { tx.instances[one.ID] = &one })
	}
	return nil
}

// ids returns the ids of up to limit matching operations.
func (r *ram) ids(limit int, matches func(row *store.Row) bool, order func(a, b *store.Row) int) []string {
	var found []*store.Row
	for _, s := range r.rows {
		if matches(&s.row) {
			found = append(found, &s.row)
		}
	}
	slices.SortStableFunc(found, order)
	var ids []string
	for _, row := range found[:min(limit, len(found))] {
		ids = append(ids, row.Operation.ID)
	}
	return ids
}

func byID(a, b *store.Row) int { return strings.Compare(a.Operation.ID, b.Operation.ID) }

func (tx *ramTx) Due(_ context.Context, now time.Time, limit int) ([]string, error) {
	return tx.ids(limit, func(row *store.Row) bool {
		return !row.DueAt.IsZero() && !row.DueAt.Before(tx.marks.Due) && !row.DueAt.After(now) && tx.bug != bugNoSweepOfDue
	}, func(a, b *store.Row) int { return a.DueAt.Compare(b.DueAt) }), nil
}

func (r *ram) inFlight(row *store.Row, until time.Time) bool {
	return row.InFlight() && row.DueAt.IsZero() && !row.ExecuteBefore.After(until)
}

func (tx *ramTx) Unanswered(_ context.Context, now time.Time, limit int) ([]string, error) {
	return tx.ids(limit, func(row *store.Row) bool {
		return tx.inFlight(row, now) && row.Operation.ID >= tx.marks.ID && tx.bug != bugNoSweepOfUnanswered
	}, byID), nil
}

func (tx *ramTx) InFlight(_ context.Context, until time.Time, behind string, limit int) ([]string, error) {
	return tx.ids(limit, func(row *store.Row) bool { return tx.inFlight(row, until) && row.Operation.ID > behind }, byID), nil
}

func (tx *ramTx) Releasable(_ context.Context, active []string, limit int) ([]string, error) {
	return tx.ids(limit, func(row *store.Row) bool { return row.Held() && !slices.Contains(active, row.HoldID) }, byID), nil
}

// next reports whether an operation is the first pending one of a free instance.
func (r *ram) next(row *store.Row) bool {
	i := r.instances[row.Operation.InstanceID]
	if row.Status != event.Pending || i == nil || i.Running != "" && r.bug != bugTwoOfAnInstance {
		return false
	}
	for _, s := range r.rows {
		if s.row.Operation.InstanceID == row.Operation.InstanceID && s.row.Status == event.Pending {
			return s.row.Operation.ID == row.Operation.ID || r.bug == bugOvertaking
		}
	}
	return false
}

func (r *ram) AnyPending(context.Context) (bool, error) {
	return slices.ContainsFunc(r.rows, func(s *stored) bool { return s.row.Status == event.Pending && !s.row.Held() }), nil
}

func (tx *ramTx) LockAdmission(context.Context) error { return nil }

// mayStart returns the operations that may start, in order of arrival.
func (tx *ramTx) mayStart(except []string) (found []*store.Row) {
	for _, s := range tx.rows {
		if !s.row.Held() && !slices.Contains(except, s.row.Operation.ID) && tx.next(&s.row) {
			found = append(found, &s.row)
		}
	}
	return found
}

func (tx *ramTx) PendingQueues(_ context.Context, w limit.Window, except []string) (found []limit.Waiting, err error) {
	for _, row := range tx.mayStart(except) {
		q := limit.QueueOf(&row.Operation)
		if limit.IsUpgrade(q.Type) == w.Upgrades && compare(q, w.After) > 0 && !slices.ContainsFunc(found, func(w limit.Waiting) bool { return w.Queue == q }) {
			found = append(found, limit.Waiting{Queue: q, First: row.Arrived})
		}
	}
	slices.SortFunc(found, func(a, b limit.Waiting) int {
		return compare(a.Queue, b.Queue)
	})
	if !w.Upgrades && tx.bug == bugUpgradesFirst && slices.ContainsFunc(tx.mayStart(except), func(row *store.Row) bool { return limit.IsUpgrade(row.Operation.Type) }) {
		return nil, nil
	}
	return found[:min(w.Most, len(found))], nil
}

func compare(a, b limit.Queue) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.GlobalAccount, b.GlobalAccount), cmp.Compare(a.Plan, b.Plan), cmp.Compare(a.Region, b.Region))
}

func (tx *ramTx) Running(context.Context) (map[limit.Queue]int, error) {
	running := map[limit.Queue]int{}
	for _, s := range tx.rows {
		counts := s.row.Status == event.InProgress && tx.bug != bugNoLimit
		if counts || s.row.Status == event.Succeeded && tx.bug == bugPlaceNotFreed {
			running[limit.QueueOf(&s.row.Operation)]++
		}
	}
	return running, nil
}

func (tx *ramTx) Take(_ context.Context, turns []limit.Turn, except []string, most int) (found []store.Candidate, err error) {
	for _, turn := range turns {
		of := tx.mayStart(except)
		if tx.bug == bugOvertaking {
			slices.Reverse(of)
		}
		n := 0
		for _, row := range of {
			op := &row.Operation
			if n < turn.N && len(found) < most && limit.QueueOf(op) == turn.Queue {
				found = append(found, store.Candidate{ID: op.ID, InstanceID: op.InstanceID, Queue: turn.Queue})
				n++
			}
		}
	}
	return found, nil
}

func (tx *ramTx) PendingOf(_ context.Context, instanceIDs []string) (found []store.Candidate, err error) {
	for _, s := range tx.rows {
		op := &s.row.Operation
		i := tx.instances[op.InstanceID]
		free := i != nil && (i.Running == "" || tx.bug == bugTwoOfAnInstance)
		if s.row.Status == event.Pending && free && slices.Contains(instanceIDs, op.InstanceID) {
			found = append(found, store.Candidate{ID: op.ID, InstanceID: op.InstanceID, Queue: limit.QueueOf(op)})
		}
	}
	return found, nil
}

func (r *ram) SweepStatus(_ context.Context, now time.Time, whole bool) (l store.SweepStatus, err error) {
	earlier := func(at *time.Time, t time.Time) {
		if at.IsZero() || t.Before(*at) {
			*at = t
		}
	}
	if r.marks.Old(now) {
		var due, created time.Time
		id := ""
		for _, s := range r.rows {
			if !s.row.DueAt.IsZero() {
				earlier(&due, s.row.DueAt)
			}
			if s.row.Status.Final() {
				continue
			}
			earlier(&created, s.row.CreatedAt)
			if id == "" || s.row.Operation.ID < id {
				id = s.row.Operation.ID
			}
		}
		r.marks = store.NewMarks(now, due, created, id)
	}
	for _, s := range r.rows {
		l.Limited = l.Limited || whole && s.row.Limited()
		l.Held = l.Held || s.row.Held() && r.bug != bugNoSweepOfHeld
		l.Signalled = l.Signalled || s.row.AwaitsEvent() && r.nextSignal(s.row.EventKey) != nil && r.bug != bugNoSweepOfSignals
		switch row := &s.row; {
		case !row.DueAt.IsZero():
			if !row.DueAt.Before(r.marks.Due) {
				earlier(&l.NextDue, row.DueAt)
			}
		case whole && row.InFlight() && row.Operation.ID >= r.marks.ID:
			earlier(&l.NextUnanswered, row.ExecuteBefore)
		case whole && row.Status == event.Pending && !row.CreatedAt.Before(r.marks.Created):
			l.Pending = r.bug != bugNoSweepOfPending
		}
	}
	return l, nil
}

func (r *ram) SentCommands(_ context.Context, behind string, limit int) (found []store.SentCommand, err error) {
	for _, id := range r.ids(limit, func(row *store.Row) bool {
		return row.InFlight() && row.DueAt.IsZero() && row.Operation.ID > behind && r.bug != bugNothingAtAStart
	}, byID) {
		row := &r.byID[id].row
		o := store.SentCommand{
			OperationID: id, Cursor: row.Cursor, Dispatch: row.Dispatch, Definition: row.Definition, Stage: row.Stage, Step: row.Step,
			SentAt: row.SentAt, ExecuteBefore: row.ExecuteBefore, Extended: row.Extended,
		}
		if o.SentAt.IsZero() {
			o.SentAt = row.FirstTriedAt
		}
		if r.bug == bugFirstSentAtAStart {
			o.ExecuteBefore = o.SentAt.Add(r.execution(row))
		}
		found = append(found, o)
	}
	return found, nil
}

func (r *ram) AnyInFlight(_ context.Context, until time.Time) (bool, error) {
	return slices.ContainsFunc(r.rows, func(s *stored) bool { return r.inFlight(&s.row, until) }), nil
}

func (r *ram) ActiveSince(_ context.Context, since time.Time, behind string, limit int) ([]string, error) {
	return r.ids(limit, func(row *store.Row) bool {
		return row.Operation.ID > behind && row.Cursor > 0 && (row.FinishedAt.IsZero() || !row.FinishedAt.Before(since))
	}, byID), nil
}

func (r *ram) DropInstances(_ context.Context, ids []string) error {
	for _, id := range ids {
		if i := r.instances[id]; i != nil && i.Running == "" && i.Waiting == 0 {
			delete(r.instances, id)
		}
	}
	return nil
}

func (r *ram) ForgetUsers(context.Context, []string) error { return nil }

func (r *ram) Unpublished(_ context.Context, endedSince time.Time, limit int) (found []store.FactRange, err error) {
	for _, s := range r.rows {
		if s.factsAfter != nil && len(found) < limit && (!s.row.Status.Final() || !s.row.FinishedAt.Before(endedSince)) {
			found = append(found, store.FactRange{OperationID: s.row.Operation.ID, After: *s.factsAfter})
		}
	}
	return found, nil
}

func (r *ram) FactsUnpublished(_ context.Context, ranges []store.FactRange) error {
	if len(ranges) == 0 {
		return nil
	}
	fault := r.access(callNote)
	if fault == faultFails {
		return errAway
	}
	for _, f := range ranges {
		if s := r.byID[f.OperationID]; s != nil {
			s.note(&f.After)
		}
	}
	if fault == faultSilent {
		return errAway
	}
	return nil
}

func (r *ram) FactsPublished(_ context.Context, ranges []store.FactRange) error {
	if len(ranges) == 0 {
		return nil
	}
	if r.access(callNote) == faultFails {
		return errAway
	}
	for _, f := range ranges {
		s := r.byID[f.OperationID]
		if s == nil || s.factsAfter == nil || *s.factsAfter != f.After {
			continue
		}
		s.factsAfter = nil
		if s.row.Cursor > f.Through {
			s.factsAfter = &f.Through
		}
	}
	return nil
}

func (r *ram) EntriesAfter(_ context.Context, ranges []store.FactRange, limit int) (map[string][]engine.Entry, error) {
	found := map[string][]engine.Entry{}
	for _, f := range ranges {
		s := r.byID[f.OperationID]
		if s == nil || r.bug == bugNoFactsAgain {
			continue
		}
		i, _ := slices.BinarySearchFunc(s.history, f.After+1, func(e engine.Entry, cursor int64) int { return cmp.Compare(e.Cursor, cursor) })
		if rest := s.history[i:]; len(rest) > 0 {
			found[f.OperationID] = append(found[f.OperationID], rest[:min(limit, len(rest))]...)
		}
	}
	return found, nil
}
