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
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// outbox publishes every committed command until the bus confirms it. The content of a command follows from the row of its operation, so
// the outbox holds only operation ids. All commands are published by send. Unconfirmed commands stay in the outbox, and Drain, which runs
// at the start of every sweep, publishes them again under the same message id.
//
// These cases can leave a committed command unpublished:
//
//	case                         when it is sent again                 why a second copy is harmless
//	publication failed, or       with each sweep, for sendWithin       the stream drops a second copy of a message id for
//	commit without an answer                                           event.DuplicateWindow
//	start of an orchestrator     once, if it was sent in the last      as above, or no worker has it; AfterLoss covers
//	(AfterStart)                 republishWithin                       commands sent before the stream was created
//	loss of a stream             once workers have reported what they  no worker executes it; it keeps its id if the commands
//	(AfterLoss)                  execute                               are lost, otherwise it gets a new dispatch number
//	lapsed (AfterLoss)           when the bus answers again, if        no worker executes it, and the stream drops a copy that
//	                             neither a stream nor a worker has it  the bus stores late
//	limit passed (Due)           at its limit, with a new dispatch     the worker has stopped by then
//	hold that is read before     with the first sweep after the        as in the first row
//	the second publication       release, for sendWithin; if only
//	                             AfterStart found it, at its limit
//	redelivered message (stale   with the message, under its own id    as in the first row; later the worker asks whether the
//	result, known request)                                             command is current (decision 0038)
//
// Only the first case needs the memory of this process. The others follow from Postgres and from redelivered messages. A command lapses if the
// bus has not confirmed it within sendWithin: it leaves the outbox, and Lapsed makes the recovery look for it.
type outbox struct {
	deps    *Deps
	metrics *Metrics
	// message and fact create the messages of a work, and newWork creates a work from a row.
	message func(w *work) (bus.Message, error)
	fact    func(w *work, f *engine.Fact) (bus.Message, error)
	newWork func(ctx context.Context, row *store.Row) (*work, error)
	// fail commits the failure of an operation whose command can never be sent; it returns nil if the operation has moved on.
	fail func(ctx context.Context, u unsendable) (*work, error)
	// hold commits the hold of an operation whose command was never published.
	hold func(ctx context.Context, w *work, id string) error

	mu      sync.Mutex
	entries map[string]entry // by operation id
	// lapsed is the last time at which a command lapsed; zero if none has.
	lapsed time.Time
	// published holds the facts whose publication is not recorded yet.
	published []store.FactRange
	// nextFacts is the time of the next check for unpublished facts.
	nextFacts time.Time
	// factsPausedUntil is the time until which works do not publish their facts: the bus has not acknowledged the last ones.
	factsPausedUntil time.Time
}

// command identifies a command of an operation.
type command struct {
	cursor   int64
	dispatch int
}

func commandOf(row *store.Row) command { return command{cursor: row.Cursor, dispatch: row.Dispatch} }

// entry is a command that the bus has not confirmed.
type entry struct {
	command
	// until is the time after which the stream may no longer drop a second copy.
	until time.Time
}

const (
	// republishWithin is the maximum age of a command that a starting orchestrator publishes again. The rest of the duplicate window
	// covers the publication and the clock skew.
	republishWithin = event.DuplicateWindow - pageTimeout - clockSkew
	// sendWithin is the time after the first publication during which an orchestrator publishes its own commands again.
	sendWithin = event.DuplicateWindow - pageTimeout
	// pageTimeout bounds the publication of one page of commands.
	pageTimeout = 5 * time.Second
	// clockSkew is the maximum difference between the clocks of orchestrators and the bus.
	clockSkew = 5 * time.Second
	// republishPause is the pause before unconfirmed commands are published again.
	republishPause = time.Second
)

// send publishes the commands and facts of committed works, commands first because workers wait for them. It returns when the bus has
// confirmed the commands. A command that can never be sent fails only its own operation; send returns the works of these operations. With
// an error the unconfirmed commands are in the outbox. Unconfirmed facts are published later, see facts.go.
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
	var kept []*work                     // their commands may be published when their holds are released
	held := map[*work]string{}           // the holds of commands that were never published
	for _, w := range works {
		if (w.effects.Dispatch || w.republish) && w.row.InFlight() {
			if id := heldBy(o.deps.Holds, w); id != "" { // the hold is newer than the decision
				if w.republish {
					kept = append(kept, w)
				} else {
					held[w] = id
				}
				continue
			}
			m, err := o.message(w)
			if err != nil {
				never = append(never, unsendable{w, err.Error()})
				continue
			}
			messages, sent = append(messages, m), append(sent, w)
		}
	}
	owners := make([]*work, len(messages), cap(messages)) // by the index of the message; nil for a command
	paused := o.factsPaused()
	var later []*work // whose facts are published by a sweep
	for _, w := range works {
		if paused && len(w.effects.Facts) > 0 {
			later = append(later, w)
			continue
		}
		for i := range w.effects.Facts {
			m, err := o.fact(w, &w.effects.Facts[i])
			if err != nil {
				o.metrics.factsLost.Inc()
				o.deps.Log.Error("fact cannot be published", "err", err)
				continue
			}
			messages, owners = append(messages, m), append(owners, w)
		}
	}
	failures, err := o.classify(sent, owners, o.deps.Publisher.Publish(ctx, messages...))
	for w, id := range held { // last, so that nothing delays a publication after its check
		if o.hold(ctx, w, id) != nil {
			kept = append(kept, w)
		}
	}
	for _, w := range later {
		failures.facts[w] = true
		o.metrics.factsLost.Add(float64(len(w.effects.Facts)))
	}
	o.confirm(sent, failures.unconfirmed)
	o.add(append(kept, failures.unconfirmed...), first)
	if problem := o.settleFacts(ctx, works, failures.facts, err != nil); problem != nil {
		err = errors.Join(err, problem)
	}
	return append(never, failures.tooLarge...), err
}

// unsendable is an operation whose command can never be sent.
type unsendable struct {
	work   *work
	reason string
}

// publishFailures are the unpublished messages of a batch.
type publishFailures struct {
	// tooLarge are commands that can never be published.
	tooLarge []unsendable
	// unconfirmed are the works whose commands must be published again.
	unconfirmed []*work
	// facts are the works whose facts must be published again.
	facts map[*work]bool
}

// classify sorts the messages that the bus has not confirmed. sent holds the works of the commands, and owners the works of all messages,
// both by index. It returns an error if commands must be published again.
func (o *outbox) classify(sent, owners []*work, err error) (failures publishFailures, _ error) {
	failures.facts = map[*work]bool{}
	if err == nil {
		return failures, nil
	}
	unpublished := bus.Unpublished(err, len(owners))
	facts, unacknowledged := 0, false
	for i, owner := range owners {
		cause := unpublished[i]
		if cause == nil {
			continue
		}
		tooLarge, ok := errors.AsType[*bus.TooLargeError](cause)
		switch {
		case i >= len(sent):
			facts++
			unacknowledged = unacknowledged || errors.Is(cause, context.DeadlineExceeded)
			if !ok { // a fact that is too large can never be published
				failures.facts[owner] = true
			}
		case ok:
			w := sent[i]
			failures.tooLarge = append(failures.tooLarge, unsendable{w, w.tooLarge(int(tooLarge.Size), int(tooLarge.Limit))})
		default:
			failures.unconfirmed = append(failures.unconfirmed, sent[i])
		}
	}
	if facts > 0 {
		o.metrics.factsLost.Add(float64(facts))
		o.deps.Log.Warn("facts not published", "facts", facts, "err", err)
	}
	if unacknowledged && len(failures.unconfirmed) == 0 { // only the stream of facts is slow
		o.pauseFacts()
	}
	if len(failures.unconfirmed) > 0 {
		return failures, fmt.Errorf("publish commands: %w", err)
	}
	return failures, nil
}

// add adds the commands of works to the outbox. first is the time of their first publication, or the earliest time of their commit. A
// command that is already in the outbox keeps its time.
func (o *outbox) add(works []*work, first time.Time) {
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
	next := o.deps.Now().Add(republishPause)
	if next.Before(o.nextFacts) {
		o.nextFacts = next // their facts may not be published either
	}
	o.deps.Wake(next)
}

// confirm removes the commands of works from the outbox, except those of unconfirmed works.
func (o *outbox) confirm(works, unconfirmed []*work) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.entries) == 0 {
		return
	}
	for _, w := range works {
		if id := w.row.Operation.ID; o.entries[id].command == commandOf(w.row) && !slices.Contains(unconfirmed, w) {
			delete(o.entries, id)
		}
	}
}

// pending removes commands that have lapsed, and returns the others by operation id.
func (o *outbox) pending(now time.Time) map[string]command {
	o.mu.Lock()
	defer o.mu.Unlock()
	had := len(o.entries)
	maps.DeleteFunc(o.entries, func(_ string, e entry) bool { return now.After(e.until) })
	if n := had - len(o.entries); n > 0 {
		o.lapsed = now
		o.deps.Log.Warn("the bus has not confirmed commands; they are looked for once it answers, and sent again if it lacks them",
			"commands", n, "waited", sendWithin)
	}
	commands := make(map[string]command, len(o.entries))
	for id, e := range o.entries {
		commands[id] = e.command
	}
	return commands
}

// remove removes commands from the outbox.
func (o *outbox) remove(commands map[string]command) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.entries, func(id string, e entry) bool { return commands[id] == e.command })
}

// currentWorks reads the rows of commands, and returns works for the operations that have not moved on. It removes commands in the scope
// of a hold from the map.
func (o *outbox) currentWorks(ctx context.Context, commands map[string]command, ids []string) (works []*work, err error) {
	rows, err := o.deps.Store.Load(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		row := rows[id]
		if row == nil || !row.InFlight() || commandOf(row) != commands[id] {
			continue
		}
		w, err := o.newWork(ctx, row)
		if err != nil {
			if isTransient(ctx, err) {
				return nil, err
			}
			logStuck(o.deps.Log, row, err)
			continue
		}
		if heldBy(o.deps.Holds, w) != "" {
			delete(commands, id) // an entry of the outbox stays there
			continue
		}
		w.republish = true
		works = append(works, w)
	}
	return works, nil
}
