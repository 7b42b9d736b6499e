package dispatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// outbox owns every command that is committed and that the bus has not confirmed. A row is its own outbox: the command follows from it. So
// the outbox remembers only which rows to look at, and all commands go out through send. What the bus does not confirm stays in the outbox,
// and Drain, which every sweep calls first, publishes it again under the same message id.
//
// A command that may not be on the bus is found in one of these ways:
//
//	found because                when it is sent                       why a second copy is harmless
//	its publication failed, or   with each sweep, for sendWithin       the stream drops a second copy of a message id for
//	its commit has no answer                                           event.DuplicateWindow
//	an orchestrator starts       once, if it was sent in the last      as above; what was sent before the stream was made
//	(AfterStart)                 republishWithin                       is left to AfterLoss
//	a stream was lost            once workers have said what they      a worker does not hold it; under its own id if the
//	(AfterLoss)                  execute                               commands are lost, else under a new dispatch
//	its limit is over (Due)      at its limit, with a new dispatch     the worker has stopped by then
//	its message comes again      with the message, under its own id    as in the first row; after that the worker asks
//	(a stale result, a known                                           whether the command is current (decision 0038)
//	request)
//
// The first row is the memory of this process, the others need none: they follow from Postgres and from what the bus delivers. What leaves
// the outbox unsent, because sendWithin is over, is found at its limit.
type outbox struct {
	deps    *Deps
	metrics *Metrics
	// message and fact make the messages of a work, and open makes a work of a row that was read.
	message func(w *work) (bus.Message, error)
	fact    func(w *work, f *engine.Fact) (bus.Message, error)
	open    func(ctx context.Context, row *store.Row) (*work, error)
	// fail commits that an operation has failed because its command can never be sent; nil if the operation has moved on.
	fail func(ctx context.Context, u unsendable) (*work, error)

	mu      sync.Mutex
	entries map[string]entry // by the ids of operations
	// nextFacts is when rows are looked at whose facts may not be published.
	nextFacts time.Time
}

// command is what tells a command of an operation from another.
type command struct {
	cursor   int64
	dispatch int
}

func commandOf(row *store.Row) command { return command{cursor: row.Cursor, dispatch: row.Dispatch} }

// entry is a command that the bus has not confirmed.
type entry struct {
	command
	// until is when the stream may no longer drop a second copy.
	until time.Time
}

const (
	// republishWithin is how long after it was sent a command is published again by an orchestrator that starts. The rest of the duplicate
	// window is for the publication, and for clocks that differ.
	republishWithin = event.DuplicateWindow - pageTimeout - clocksDiffer
	// sendWithin is how long after its first publication a command is published again by the orchestrator that has committed it.
	sendWithin = event.DuplicateWindow - pageTimeout
	// pageTimeout bounds the publication of one page of commands.
	pageTimeout = 5 * time.Second
	// clocksDiffer is how far the clocks of orchestrators and the bus may be apart.
	clocksDiffer = 5 * time.Second
	// betweenPublications is the pause before what was committed is published again.
	betweenPublications = time.Second
)

// send publishes the commands and facts of committed works, commands first because workers wait for them. It returns when the bus has taken
// the commands. A command that can never be sent fails its operation and holds up no other; the works of these operations are returned. With
// an error the commands that the bus has not confirmed are in the outbox. Facts that it does not take are published later, see facts.go.
func (o *outbox) send(ctx context.Context, works []*work) (failed []*work, err error) {
	for len(works) > 0 {
		never, problem := o.publish(ctx, works)
		err = errors.Join(err, problem)
		works = nil
		for _, u := range never {
			w, problem := o.fail(ctx, u)
			err = errors.Join(err, problem)
			if w != nil {
				works = append(works, w)
			}
		}
		failed = append(failed, works...)
	}
	return failed, err
}

// publish is one round of send.
func (o *outbox) publish(ctx context.Context, works []*work) (never []unsendable, err error) {
	first := o.deps.Now()
	messages := make([]bus.Message, 0, 4*len(works))
	sent := make([]*work, 0, len(works)) // by the index of the command
	for _, w := range works {
		if (w.effects.Dispatch || w.republish) && w.row.InFlight() {
			m, err := o.message(w)
			if err != nil {
				never = append(never, unsendable{w, err.Error()})
				continue
			}
			messages, sent = append(messages, m), append(sent, w)
		}
	}
	of := make([]*work, len(messages), cap(messages)) // by the index of the message; nil for a command
	for _, w := range works {
		for i := range w.effects.Facts {
			m, err := o.fact(w, &w.effects.Facts[i])
			if err != nil {
				o.metrics.factsLost.Inc()
				o.deps.Log.Error("fact cannot be published", "err", err)
				continue
			}
			messages, of = append(messages, m), append(of, w)
		}
	}
	refused, unconfirmed, factless, err := o.refused(sent, of, o.deps.Publisher.Publish(ctx, messages...))
	o.confirm(sent, unconfirmed)
	o.keep(unconfirmed, first)
	if problem := o.settleFacts(ctx, works, factless, err != nil); problem != nil {
		err = errors.Join(err, problem)
	}
	return append(never, refused...), err
}

// unsendable is an operation whose command can never be sent.
type unsendable struct {
	work   *work
	reason string
}

// refused sorts out what the bus has not taken: commands that are too large, those that are to be published again, with an error, and the
// works whose facts it has not taken.
func (o *outbox) refused(sent, of []*work, err error) (never []unsendable, unconfirmed []*work, factless map[*work]bool, _ error) {
	if err == nil {
		return nil, nil, nil, nil
	}
	factless = map[*work]bool{}
	failed, ok := errors.AsType[*bus.PublishError](err)
	if !ok {
		for _, w := range of {
			factless[w] = true
		}
		return nil, sent, factless, fmt.Errorf("publish commands and facts: %w", err)
	}
	facts := 0
	for _, f := range failed.Failures {
		tooLarge, is := errors.AsType[*bus.TooLargeError](f.Err)
		switch {
		case f.Index >= len(sent):
			facts++
			if !is { // otherwise it can never be published
				factless[of[f.Index]] = true
			}
		case is:
			w := sent[f.Index]
			never = append(never, unsendable{w, w.tooLarge(int(tooLarge.Size), int(tooLarge.Limit))})
		default:
			unconfirmed = append(unconfirmed, sent[f.Index])
		}
	}
	if facts > 0 {
		o.metrics.factsLost.Add(float64(facts))
		o.deps.Log.Warn("facts not published", "facts", facts, "err", err)
	}
	if len(unconfirmed) > 0 {
		return never, unconfirmed, factless, fmt.Errorf("publish commands: %w", err)
	}
	return never, nil, factless, nil
}

// keep puts the commands of works into the outbox. They were published first at that time, or may be committed since then. One that is there
// already keeps its time.
func (o *outbox) keep(works []*work, first time.Time) {
	if len(works) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.entries == nil {
		o.entries = map[string]entry{}
	}
	for _, w := range works {
		id, c := w.row.Operation.ID, commandOf(w.row)
		if w.row.InFlight() && o.entries[id].command != c {
			o.entries[id] = entry{command: c, until: first.Add(sendWithin)}
		}
	}
	next := o.deps.Now().Add(betweenPublications)
	if next.Before(o.nextFacts) {
		o.nextFacts = next // their facts are not published either
	}
	o.deps.Wake(next)
}

// confirm takes the commands of works out of the outbox that the bus has now, which are all but some.
func (o *outbox) confirm(works, but []*work) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.entries) == 0 {
		return
	}
	for _, w := range works {
		if id := w.row.Operation.ID; o.entries[id].command == commandOf(w.row) && !slices.Contains(but, w) {
			delete(o.entries, id)
		}
	}
}

// due drops what is too old, and returns the rest.
func (o *outbox) due(now time.Time) map[string]command {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.entries, func(_ string, e entry) bool { return now.After(e.until) })
	commands := make(map[string]command, len(o.entries))
	for id, e := range o.entries {
		commands[id] = e.command
	}
	return commands
}

// drop takes commands out of the outbox.
func (o *outbox) drop(commands map[string]command) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.entries, func(id string, e entry) bool { return commands[id] == e.command })
}

// current reads the rows of commands, and returns the works of those whose operations have not moved on.
func (o *outbox) current(ctx context.Context, commands map[string]command, ids []string) (works []*work, err error) {
	rows, err := o.deps.Store.Load(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		row := rows[id]
		if row == nil || !row.InFlight() || commandOf(row) != commands[id] {
			continue
		}
		w, err := o.open(ctx, row)
		if err != nil {
			if passing(ctx, err) {
				return nil, err
			}
			leaveOut(o.deps.Log, row, err)
			continue
		}
		w.republish = true
		works = append(works, w)
	}
	return works, nil
}

// young returns those of a page of commands that were sent so short a time ago that the stream surely knows them if it has them, and their ids
// in order. The bus has kept what it was given since a time.
func (o *outbox) young(ctx context.Context, page []store.Out, keptSince time.Time) (commands map[string]command, ids []string, err error) {
	now := o.deps.Now()
	oldest := now.Add(-republishWithin)
	if since := keptSince.Add(clocksDiffer); since.After(oldest) {
		oldest = since
	}
	commands = map[string]command{}
	for i := range page {
		out := &page[i]
		p, err := o.deps.Definitions.Pinned(ctx, out.Definition)
		if err != nil {
			if passing(ctx, err) {
				return nil, nil, err
			}
			continue // it is reported when the operation is taken up
		}
		sent := lastSent(p, out)
		if !sent.After(oldest) || sent.After(now.Add(clocksDiffer)) || !now.Before(out.ExecuteBefore) {
			continue
		}
		commands[out.OperationID] = command{cursor: out.Cursor, dispatch: out.Dispatch}
		ids = append(ids, out.OperationID)
	}
	return commands, ids, nil
}

// lastSent is when a command was sent last. One that was sent again shortly before the deadline of its operation seems to be older than
// it is.
func lastSent(p *process.Process, out *store.Out) time.Time {
	again := out.ExecuteBefore.Add(-p.Stages[out.Stage].Steps[out.Step].Execution)
	if again.After(out.SentAt) {
		return again
	}
	return out.SentAt
}

// Drain publishes the commands in the outbox. With an error some of them are still there; then nothing else should be taken up, since its
// command would not go out either.
func (d *Dispatcher) Drain(ctx context.Context) error {
	commands := d.outbox.due(d.deps.Now())
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(commands)), d.dueBatch) {
		err := d.limited(ctx, func(ctx context.Context) error {
			_, err := d.publishAgain(ctx, commands, ids)
			return err
		})
		if err != nil {
			d.deps.Wake(d.deps.Now().Add(betweenPublications))
			return fmt.Errorf("publish commands that were not taken: %w", err)
		}
	}
	d.outbox.drop(commands) // also those that have moved on
	return nil
}

// publishAgain publishes those of the commands whose operations have not moved on, and returns how many these are.
func (d *Dispatcher) publishAgain(ctx context.Context, commands map[string]command, ids []string) (int, error) {
	works, err := d.outbox.current(ctx, commands, ids)
	if err != nil {
		return 0, err
	}
	if _, err := d.carryOut(ctx, works, nil); err != nil {
		return 0, err
	}
	return len(works), nil
}

// AfterStart publishes again, under the same ids, the commands that were sent a moment ago and after a time since which the bus has
// kept what it was given, and returns how many there were. An orchestrator that was killed may have committed them and not published
// them; those that the stream has it drops. Older ones are left to their limits, as the stream may have forgotten them, and so is what
// moves on meanwhile. Nothing is written and nothing remembered, so any number of orchestrators may do it at once, and again.
func (d *Dispatcher) AfterStart(ctx context.Context, keptSince time.Time) (published int, err error) {
	behind := beforeAll
	for {
		var page []store.Out
		err := d.limited(ctx, func(ctx context.Context) (err error) {
			page, err = d.deps.Store.Out(ctx, behind, d.dueBatch)
			return err
		})
		if err == nil {
			err = withTimeout(ctx, pageTimeout, func(ctx context.Context) error {
				commands, ids, err := d.outbox.young(ctx, page, keptSince)
				if err != nil {
					return err
				}
				n, err := d.publishAgain(ctx, commands, ids)
				published += n
				return err
			})
		}
		if err != nil {
			return published, fmt.Errorf("publish commands again after a start: %w", err)
		}
		if len(page) < d.dueBatch {
			return published, nil
		}
		behind = page[len(page)-1].OperationID
	}
}

const (
	// beforeAll sorts before every id.
	beforeAll = "00000000-0000-0000-0000-000000000000"
	// longestExecution is how long a step may take at most for its command to be found by AfterLoss; a longer one is sent again when its
	// own limit is over.
	longestExecution = 24 * time.Hour
)

// AfterLoss sends the commands of all operations in flight again that were sent before a time, at which the bus has lost what it carried, or
// only the results, and returns how many there were, and how many were not sent because no worker serves their step. What held reports is
// not sent: a worker still has it. Several orchestrators may do it at once, or again: what was sent after that time is not sent again. With an
// error some commands may be in the outbox; call it again for the rest.
func (d *Dispatcher) AfterLoss(ctx context.Context, before time.Time, resultsOnly bool, held func(worker, commandID string) bool) (sent, unserved int, err error) {
	until := before.Add(longestExecution)
	// Nearly always there is nothing, when an orchestrator has just started.
	if found, err := d.deps.Store.AnyInFlight(ctx, until); err != nil || !found {
		return 0, 0, err
	}
	if err := d.Drain(ctx); err != nil { // what would be committed now would not go out either
		return 0, 0, err
	}
	behind := beforeAll
	for {
		last, again, absent := "", 0, 0
		_, err := d.wakeBatch(ctx, func(ctx context.Context, tx Tx, _ time.Time, limit int) ([]string, error) {
			ids, err := tx.InFlight(ctx, until, behind, limit)
			last, again, absent = "", 0, 0
			if len(ids) > 0 {
				last = ids[len(ids)-1]
			}
			return ids, err
		}, func(w *work, now time.Time) error {
			worker, command := engine.Command(w.process, &w.row.State)
			if held(worker, event.CommandID(w.row.Operation.ID, command.Cursor)) {
				return engine.ErrNotPossible
			}
			err := w.wakeWith(engine.Due{
				WorkerAlive: d.deps.Workers.Serves(worker, command.Step), LostBefore: before, ResultsOnly: resultsOnly,
			}, now)
			switch {
			case errors.Is(err, engine.ErrNoWorker):
				absent++
			case err == nil && w.effects.Dispatch:
				again++
			}
			return err
		})
		if err != nil {
			return sent, unserved, fmt.Errorf("send lost commands again: %w", err)
		}
		sent, unserved = sent+again, unserved+absent
		if last == "" {
			return sent, unserved, nil
		}
		behind = last
	}
}
