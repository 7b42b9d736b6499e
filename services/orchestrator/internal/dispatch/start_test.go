package dispatch

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// longUp is a time since which the bus has kept what it was given.
func (b *bundle) longUp() time.Time { return b.clock.Now().Add(-time.Hour) }

// republished lets an orchestrator that has just started publish once more, and wants a number of commands.
func (b *bundle) republished(after time.Time, want int) {
	b.t.Helper()
	if n, err := b.orchestrator().AfterStart(b.t.Context(), after); n != want || err != nil {
		b.t.Errorf("%d commands published once more, error %v; want %d", n, err, want)
	}
}

// A bus that takes no commands stands for the kill: it comes after the commit as well. What such an orchestrator keeps in mind nobody asks
// for any more.
func TestAfterStart_UnpublishedCommand_IsPublished(t *testing.T) {
	for _, c := range []struct {
		name     string
		prepare  func(b *bundle, o *orchestrator) (id string)
		do       func(b *bundle, o *orchestrator, id string) error
		inStream uint64
		dispatch int
	}{
		{"of an operation whose time had come", func(b *bundle, o *orchestrator) string {
			id := b.request(o, "i-1")[0]
			b.waitForRetry(o, id)
			b.clock.Advance(time.Minute)
			return id
		}, func(_ *bundle, o *orchestrator, _ string) error {
			_, err := o.Due(t.Context())
			return err
		}, 2, 1},
		{"of an operation that was admitted", func(b *bundle, o *orchestrator) string {
			o.cfg.Admission = map[event.OperationType]int{event.Update: 0}
			id := b.request(o, "i-1")[0]
			o.cfg.Admission = map[event.OperationType]int{event.Update: 1}
			return id
		}, func(_ *bundle, o *orchestrator, _ string) error {
			return o.Admit(t.Context())
		}, 1, 1},
		{"of an action", func(b *bundle, o *orchestrator) string {
			return b.request(o, "i-1")[0]
		}, func(_ *bundle, o *orchestrator, id string) error {
			return o.Act(t.Context(), id, engine.SkipStep{Step: "One", By: "me"})
		}, 2, 1},
		// When it was sent for the first time is long ago.
		{"that nobody had answered", func(b *bundle, o *orchestrator) string {
			id := b.request(o, "i-1")[0]
			b.clock.Advance(time.Minute)
			return id
		}, func(_ *bundle, o *orchestrator, _ string) error {
			_, err := o.Due(t.Context())
			return err
		}, 2, 2},
		{"that the bus had lost", func(b *bundle, o *orchestrator) string {
			id := b.request(o, "i-1")[0]
			b.forgetCommands()
			b.clock.Advance(40 * time.Second)
			return id
		}, func(b *bundle, o *orchestrator, _ string) error {
			ctx, kill := context.WithCancel(t.Context())
			o.bus.set(func(subject string) bool { kill(); return commandsOnly(subject) }, false)
			_, _, err := o.AfterLoss(ctx, b.clock.Now(), false, none)
			return err
		}, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := setup(t)
			o := b.orchestrator()
			id := c.prepare(b, o)
			o.bus.set(commandsOnly, false)
			if err := c.do(b, o, id); err == nil || !b.row(id).InFlight() {
				t.Fatalf("error %v; want one whose command was committed", err)
			}
			b.inStream(event.StreamCommands, c.inStream-1)
			b.clock.Advance(2 * time.Second) // a restart
			before := b.row(id)
			b.republished(b.longUp(), 1)
			b.republished(b.longUp(), 1) // another one starts as well
			b.inStream(event.StreamCommands, c.inStream)
			if row := b.row(id); row.Version != before.Version || row.Dispatch != c.dispatch {
				t.Errorf("version %d and dispatch %d, want %d and %d", row.Version, row.Dispatch, before.Version, c.dispatch)
			}
			want := event.DispatchID(id, before.Cursor, c.dispatch)
			testkit.Eventually(t, patience, "the command is published", func() bool {
				b.mu.Lock()
				defer b.mu.Unlock()
				return slices.Contains(b.commands, want)
			})
		})
	}
}

func TestAfterStart_PublishedCommand_IsNotDuplicated(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	id := b.request(o, "i-1")[0]
	b.waitForRetry(o, id)
	b.clock.Advance(time.Minute)
	o.bus.set(commandsOnly, true)
	if _, err := o.Due(t.Context()); err == nil {
		t.Fatal("the bus has said that it has taken the command")
	}
	b.republished(b.longUp(), 1)
	b.published(id, b.row(id).Cursor, 2)
	b.inStream(event.StreamCommands, 2) // with that of the first try
}

func TestAfterStart_OutsideDuplicateWindow_IsNotPublished(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	id := b.request(o, "i-1")[0]
	now := b.clock.Now()
	for _, c := range []struct {
		name string
		age  time.Duration
		// up is how long before the command the stream was made.
		up time.Duration
		// left is how long the worker still has.
		left time.Duration
		want int
	}{
		{"young enough", republishWithin - time.Millisecond, time.Hour, time.Minute - republishWithin, 1},
		{"too old", republishWithin, time.Hour, time.Minute - republishWithin, 0},
		{"sent by a clock that is a little ahead", -clockSkew, time.Hour, time.Minute + clockSkew, 1},
		{"sent by a clock that is wrong", -clockSkew - time.Millisecond, time.Hour, time.Minute + clockSkew, 0},
		{"sent after the stream was made", 0, clockSkew + time.Millisecond, time.Minute, 1},
		{"perhaps sent before the stream was made", 0, clockSkew, time.Minute, 0},
		{"whose limit is over", time.Second, time.Hour, 0, 0},
		{"that was sent shortly before the deadline of its operation", time.Second, time.Hour, time.Second, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			sent := now.Add(-c.age)
			b.exec(`UPDATE orchestrator.operations SET sent_at = $1, execute_before = $2 WHERE id = $3`, sent, now.Add(c.left), id)
			if n, err := o.AfterStart(t.Context(), sent.Add(-c.up)); n != c.want || err != nil {
				t.Errorf("%d commands published once more, error %v; want %d", n, err, c.want)
			}
		})
	}
}

// between does something when the orchestrator looks for a definition.
type between struct {
	Definitions
	do func()
}

func (d between) Pinned(ctx context.Context, hash string) (*process.Process, error) {
	d.do()
	return d.Definitions.Pinned(ctx, hash)
}

func TestAfterStart_OperationMovesOn_IsNotPublished(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	o.bus.set(commandsOnly, false)
	id := b.request(o, "i-1")[0]
	o.bus.set(nil, false)
	cursor := b.row(id).Cursor
	started := b.orchestrator()
	moved := false
	started.deps.Definitions = between{Definitions: started.deps.Definitions, do: func() {
		if !moved {
			moved = true
			if err := o.Act(t.Context(), id, engine.SkipStep{Step: "One", By: "me"}); err != nil {
				t.Error(err)
			}
		}
	}}
	if n, err := started.AfterStart(t.Context(), b.longUp()); n != 0 || err != nil || !moved {
		t.Errorf("%d commands published once more, error %v; want none", n, err)
	}
	b.published(id, b.row(id).Cursor, 1) // Two
	b.published(id, cursor, 0)
	b.inStream(event.StreamCommands, 1)
}

func TestAfterStart_ManyCommands_ArePublishedInPages(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	o.bus.set(commandsOnly, false)
	instances := make([]string, 8)
	for i := range instances {
		instances[i] = "i-" + strconv.Itoa(i)
	}
	ids := b.request(o, instances...)
	// One that nobody can take up any more must not hold up the others.
	b.exec(`UPDATE orchestrator.requests SET definition = 'unknown' WHERE operation_id = $1`, ids[4])
	started := b.orchestrator()
	started.dueBatch = 3
	taken := 0
	started.bus.set(func(string) bool { taken++; return taken > 3 }, false)
	if n, err := started.AfterStart(t.Context(), b.longUp()); n != 3 || err == nil {
		t.Errorf("%d commands published once more, error %v; want the first page, and an error", n, err)
	}
	b.inStream(event.StreamCommands, 3)
	started.bus.set(nil, false)
	if n, err := started.AfterStart(t.Context(), b.longUp()); n != 7 || err != nil {
		t.Errorf("%d commands published once more, error %v; want all that can be read", n, err)
	}
	b.inStream(event.StreamCommands, 7)
}
