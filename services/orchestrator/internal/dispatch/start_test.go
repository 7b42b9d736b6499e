package dispatch

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// hourAgo is used as the time since which the bus has kept all messages.
func (b *bundle) hourAgo() time.Time { return b.clock.Now().Add(-time.Hour) }

// republished calls AfterStart of a new orchestrator, and checks the number of published commands.
func (b *bundle) republished(after time.Time, want int) {
	b.t.Helper()
	if n, err := b.orchestrator().AfterStart(b.t.Context(), after, noneHeld); n != want || err != nil {
		b.t.Errorf("%d commands published again, error %v; want %d", n, err, want)
	}
}

// A bus that rejects commands simulates a kill after the commit. The outbox of that orchestrator is not used again.
func TestAfterStart_UnpublishedCommand_IsPublished(t *testing.T) {
	for _, c := range []struct {
		name     string
		prepare  func(b *bundle, o *orchestrator) (id string)
		do       func(b *bundle, o *orchestrator, id string) error
		inStream uint64
		dispatch int
		// committed means that do returns no error once its change is committed.
		committed bool
	}{
		{"of an operation whose time had come", func(b *bundle, o *orchestrator) string {
			id := b.request(o, "i-1")[0]
			b.waitForRetry(o, id)
			b.clock.Advance(time.Minute)
			return id
		}, func(_ *bundle, o *orchestrator, _ string) error {
			_, err := o.Due(t.Context(), true)
			return err
		}, 2, 1, false},
		{"of an operation that was admitted", func(b *bundle, o *orchestrator) string {
			b.busy("i-1")
			id := b.request(o, "i-1")[0]
			b.free()
			return id
		}, func(_ *bundle, o *orchestrator, _ string) error {
			return o.Admit(t.Context())
		}, 1, 1, false},
		{"of an action", func(b *bundle, o *orchestrator) string {
			return b.request(o, "i-1")[0]
		}, func(_ *bundle, o *orchestrator, id string) error {
			return o.Act(t.Context(), id, engine.SkipStep{Step: "One", By: "me"})
		}, 2, 1, true},
		// The command was first sent long ago.
		{"that was not answered", func(b *bundle, o *orchestrator) string {
			id := b.request(o, "i-1")[0]
			b.clock.Advance(time.Minute)
			return id
		}, func(_ *bundle, o *orchestrator, _ string) error {
			_, err := o.Due(t.Context(), true)
			return err
		}, 2, 2, false},
		{"that the bus had lost", func(b *bundle, o *orchestrator) string {
			id := b.request(o, "i-1")[0]
			b.recreateCommands()
			b.clock.Advance(40 * time.Second)
			return id
		}, func(b *bundle, o *orchestrator, _ string) error {
			ctx, kill := context.WithCancel(t.Context())
			o.bus.set(func(subject string) bool { kill(); return commandsOnly(subject) }, false)
			_, _, err := o.AfterLoss(ctx, b.clock.Now(), false, noneHeld)
			return err
		}, 1, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := setup(t)
			o := b.orchestrator()
			id := c.prepare(b, o)
			o.bus.set(commandsOnly, false)
			if err := c.do(b, o, id); (err == nil) != c.committed || !b.row(id).InFlight() {
				t.Fatalf("error %v; want a committed command, and an error unless the caller only waits for the commit", err)
			}
			b.inStream(event.StreamCommands, c.inStream-1)
			b.clock.Advance(2 * time.Second) // a restart
			before := b.row(id)
			b.republished(b.hourAgo(), 1)
			b.republished(b.hourAgo(), 1) // another orchestrator starts
			b.inStream(event.StreamCommands, c.inStream)
			if row := b.row(id); row.Version != before.Version || row.Dispatch != c.dispatch {
				t.Errorf("version %d and dispatch %d, want %d and %d", row.Version, row.Dispatch, before.Version, c.dispatch)
			}
			want := event.DispatchID(id, before.AwaitedCursor(), c.dispatch)
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
	if _, err := o.Due(t.Context(), true); err == nil {
		t.Fatal("the bus has confirmed the command")
	}
	b.republished(b.hourAgo(), 1)
	b.published(id, b.row(id).Cursor, 2)
	b.inStream(event.StreamCommands, 2) // including the first try
}

func TestAfterStart_OutsideDuplicateWindow_IsNotPublished(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	id := b.request(o, "i-1")[0]
	now := b.clock.Now()
	for _, c := range []struct {
		name string
		age  time.Duration
		// up is the time from the creation of the stream to the command.
		up time.Duration
		// left is the time until the limit of the command.
		left time.Duration
		want int
	}{
		{"recent", republishWithin - time.Millisecond, time.Hour, time.Minute - republishWithin, 1},
		{"old", republishWithin, time.Hour, time.Minute - republishWithin, 0},
		{"sent by a clock that is a little ahead", -clockSkew, time.Hour, time.Minute + clockSkew, 1},
		{"sent by a clock that is wrong", -clockSkew - time.Millisecond, time.Hour, time.Minute + clockSkew, 0},
		{"sent after the stream was created", 0, 0, time.Minute, 1},
		{"sent before the stream was created", 0, -time.Millisecond, time.Minute, 0},
		{"limit passed", time.Second, time.Hour, 0, 0},
		{"sent shortly before the deadline of its operation", time.Second, time.Hour, time.Second, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			sent := now.Add(-c.age)
			b.exec(`UPDATE orchestrator.operations SET sent_at = $1, execute_before = $2 WHERE id = $3`, sent, now.Add(c.left), id)
			if n, err := o.AfterStart(t.Context(), sent.Add(-c.up), noneHeld); n != c.want || err != nil {
				t.Errorf("%d commands published again, error %v; want %d", n, err, c.want)
			}
		})
	}
}

// A stream that was created shortly before the command may have replaced the one that the command was sent to.
func TestAfterStart_NewStream_SkipsHeldCommands(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	id := b.request(o, "i-1")[0]
	row := b.row(id)
	for _, c := range []struct {
		name string
		up   time.Duration
		held string
		want int
	}{
		{"held", clockSkew, event.CommandID(id, row.Cursor), 0},
		{"another one held", clockSkew, event.CommandID(id, row.Cursor+1), 1},
		{"held, and surely sent to this stream", clockSkew + time.Millisecond, event.CommandID(id, row.Cursor), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, err := o.AfterStart(t.Context(), row.SentAt.Add(-c.up), func(_, commandID string) bool { return commandID == c.held })
			if n != c.want || err != nil {
				t.Errorf("%d commands published again, error %v; want %d", n, err, c.want)
			}
		})
	}
}

// hookedDefinitions calls do before each lookup of a definition.
type hookedDefinitions struct {
	Definitions
	do func()
}

func (d hookedDefinitions) Pinned(ctx context.Context, hash string) (*process.Process, error) {
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
	started.deps.Definitions = hookedDefinitions{Definitions: started.deps.Definitions, do: func() {
		if !moved {
			moved = true
			if err := o.Act(t.Context(), id, engine.SkipStep{Step: "One", By: "me"}); err != nil {
				t.Error(err)
			}
		}
	}}
	if n, err := started.AfterStart(t.Context(), b.hourAgo(), noneHeld); n != 0 || err != nil || !moved {
		t.Errorf("%d commands published again, error %v; want none", n, err)
	}
	b.published(id, b.row(id).Cursor, 1) // Two
	b.published(id, cursor, 0)
	b.inStream(event.StreamCommands, 1)
}

func TestAfterStart_ManyCommands_ArePublishedInPages(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	o.bus.set(commandsOnly, false)
	ids := b.request(o, instances(8)...)
	// An unreadable row must not block the others.
	b.breakDefinition(ids[4])
	started := b.orchestrator()
	started.dueBatch = 3
	taken := 0
	started.bus.set(func(string) bool { taken++; return taken > 3 }, false)
	if n, err := started.AfterStart(t.Context(), b.hourAgo(), noneHeld); n != 3 || err == nil {
		t.Errorf("%d commands published again, error %v; want the first page and an error", n, err)
	}
	b.inStream(event.StreamCommands, 3)
	started.bus.set(nil, false)
	if n, err := started.AfterStart(t.Context(), b.hourAgo(), noneHeld); n != 7 || err != nil {
		t.Errorf("%d commands published again, error %v; want all readable ones", n, err)
	}
	b.inStream(event.StreamCommands, 7)
}
