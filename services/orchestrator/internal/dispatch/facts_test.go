package dispatch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
	"github.com/kyma-project/keb/services/orchestrator/internal/timer"
)

// factReader collects published facts as "cursor kind".
type factReader struct {
	b    *bundle
	seen map[string][]string // by operation id
}

func (b *bundle) readFacts() *factReader {
	b.t.Helper()
	r := &factReader{b: b, seen: map[string][]string{}}
	b.listen("keb.fact.>", func(m *nats.Msg) {
		id, rest, _ := strings.Cut(m.Header.Get("ce-id"), "%2F")
		if !strings.Contains(m.Header.Get("ce-id"), "%2F") {
			id, rest, _ = strings.Cut(m.Header.Get("ce-id"), "/")
		}
		cursor, _, _ := strings.Cut(strings.ReplaceAll(rest, "%2F", "/"), "/")
		kind := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		r.seen[id] = append(r.seen[id], cursor+" "+kind)
	})
	return r
}

// want waits until exactly the wanted facts of an operation are published, each at least once.
func (r *factReader) want(id string, want ...string) {
	r.b.t.Helper()
	var got []string
	defer func() {
		if r.b.t.Failed() {
			r.b.t.Logf("facts of %s: %v", id, got)
		}
	}()
	testkit.Eventually(r.b.t, patience, fmt.Sprintf("the facts %v are published", want), func() bool {
		r.b.mu.Lock()
		defer r.b.mu.Unlock()
		got = slices.Clone(r.seen[id])
		slices.Sort(got)
		return slices.Equal(slices.Compact(slices.Clone(got)), want)
	})
}

// everything rejects all messages.
func everything(string) bool { return true }

// killed runs do, in which the orchestrator must be killed, and requests redelivery of the messages.
func killed(t *testing.T, batch []*bus.Delivery, do func() error) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Fatal("the orchestrator was not killed")
		}
		for _, d := range batch {
			require.NoError(t, d.Nak(0))
		}
	}()
	require.NoError(t, do())
}

func (b *bundle) factsAfter(id string) (after *int64) {
	b.t.Helper()
	require.NoError(b.t, b.db.Get(&after, `SELECT facts_after FROM orchestrator.operations WHERE id = $1`, id))
	return after
}

// finish answers both steps of an update with success.
func (b *bundle) finish(o *orchestrator, id string) {
	b.t.Helper()
	for b.row(id).InFlight() {
		b.answer(id, b.row(id).AwaitedCursor(), func(r *event.StepSucceeded) { r.Step = []string{"One", "Two"}[b.row(id).Step] })
		b.deliver(o, 1)
	}
	if got := b.row(id).Status; got != event.Succeeded {
		b.t.Fatalf("the operation is %s", got)
	}
}

var (
	begun    = []string{"1 operation-started"}
	oneDone  = append(slices.Clone(begun), "2 step-finished")
	finished = append(slices.Clone(oneDone), "3 stage-finished", "3 step-finished", "4 operation-succeeded")
)

func TestFacts_KilledBeforePublication_RedeliveryPublishes(t *testing.T) {
	b := setup(t)
	facts := b.readFacts()
	o := b.orchestrator()
	o.bus.set(func(string) bool { panic("killed") }, false)
	id := b.publishRequests(event.Operation{Type: event.Update, InstanceID: "i-1"})[0]
	batch := b.take(b.requests, 1)
	killed(t, batch, func() error { return o.Requests(t.Context(), batch) })
	facts.want(id)
	o = b.orchestrator()
	require.NoError(t, o.Requests(t.Context(), b.take(b.requests, 1)))
	facts.want(id, begun...)
	for b.row(id).InFlight() { // the second result ends the operation
		b.answer(id, b.row(id).AwaitedCursor(), func(r *event.StepSucceeded) { r.Step = []string{"One", "Two"}[b.row(id).Step] })
		o.bus.set(func(string) bool { panic("killed") }, false)
		batch = b.take(b.results, 1)
		killed(t, batch, func() error { return o.Results(t.Context(), batch) })
		o = b.orchestrator()
		b.deliver(o, 1)
	}
	facts.want(id, finished...)
	b.inStream(event.StreamResults, 0)
	if after := b.factsAfter(id); after != nil {
		t.Errorf("facts_after is %d, want NULL", *after)
	}
}

// Transitions caused by the clock, an operator or the end of another operation have no message that is redelivered.
func TestFacts_KilledBeforePublication_NextStartPublishes(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(b *bundle, o *orchestrator) (id string)
		do      func(b *bundle, o *orchestrator, id string) error
		want    []string
	}{
		{"admission", func(b *bundle, o *orchestrator) string {
			b.busy("i-1")
			id := b.request(o, "i-1")[0]
			b.free()
			return id
		}, func(_ *bundle, o *orchestrator, _ string) error { return o.Admit(t.Context()) }, begun},
		{"action", func(b *bundle, o *orchestrator) string {
			return b.request(o, "i-1")[0]
		}, func(_ *bundle, o *orchestrator, id string) error {
			return o.Act(t.Context(), id, engine.SkipStep{Step: "One", By: "me"})
		}, oneDone},
		{"end by an action", func(b *bundle, o *orchestrator) string {
			id := b.request(o, "i-1")[0]
			require.NoError(t, o.Act(t.Context(), id, engine.SkipStep{Step: "One", By: "me"}))
			return id
		}, func(_ *bundle, o *orchestrator, id string) error {
			return o.Act(t.Context(), id, engine.SkipStep{Step: "Two", By: "me"})
		}, finished},
		{"deadline", func(b *bundle, o *orchestrator) string {
			id := b.request(o, "i-1")[0]
			b.clock.Advance(2 * time.Hour)
			return id
		}, func(_ *bundle, o *orchestrator, _ string) error {
			_, err := o.Due(t.Context(), true)
			return err
		}, append(slices.Clone(begun), "2 operation-failed")},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := setup(t)
			facts := b.readFacts()
			o := b.orchestrator()
			id := c.prepare(b, o)
			o.bus.set(everything, false)
			if err := c.do(b, o, id); err != nil && b.row(id).Status.Final() {
				t.Fatalf("error %v", err)
			}
			if b.factsAfter(id) == nil {
				t.Fatal("facts_after is NULL although the facts are not published")
			}
			started := b.orchestrator()
			require.NoError(t, started.PublishFacts(t.Context()))
			facts.want(id, c.want...)
			if after := b.factsAfter(id); after != nil {
				t.Errorf("facts_after is %d, want NULL", *after)
			}
			published := len(facts.seen[id])
			b.clock.Advance(factsEvery)
			require.NoError(t, started.PublishFacts(t.Context()))
			last := b.request(started, "i-2")[0] // its facts arrive after all earlier ones
			facts.want(last, begun...)
			if got := len(facts.seen[id]); got != published {
				t.Errorf("%d facts are published after another check, want %d", got, published)
			}
		})
	}
}

func TestFacts_Published_ClearTheRow(t *testing.T) {
	b := setup(t)
	facts := b.readFacts()
	o := b.orchestrator()
	b.busy("i-1")
	id := b.request(o, "i-1")[0]
	b.free()
	require.NoError(t, o.Admit(t.Context()))
	facts.want(id, begun...)
	published := len(facts.seen[id])
	o.RecordFacts(t.Context())
	if after := b.factsAfter(id); after != nil {
		t.Errorf("facts_after is %d, want NULL", *after)
	}
	last := b.request(o, "i-2")[0] // its facts arrive after all earlier ones
	facts.want(last, begun...)
	if got := len(facts.seen[id]); got != published {
		t.Errorf("%d facts are published after the sweep, want %d", got, published)
	}
}

func TestFacts_PublishFails_OperationContinues(t *testing.T) {
	b := setup(t)
	facts := b.readFacts()
	o := b.orchestrator()
	o.bus.set(factsOnly, false)
	id := b.request(o, "i-1")[0]
	b.answer(id, b.row(id).AwaitedCursor(), nil)
	b.deliver(o, 1)
	b.published(id, b.row(id).Cursor, 1)
	b.finish(o, id)
	b.inStream(event.StreamResults, 0)
	b.inStream(event.StreamFacts, 0)
	if count(o.metrics.factsLost) == 0 {
		t.Error("unpublished facts are not counted")
	}
	require.NoError(t, b.orchestrator().PublishFacts(t.Context())) // another process
	facts.want(id, finished...)
	if err := o.PublishFacts(t.Context()); err != nil || b.factsAfter(id) != nil {
		t.Errorf("error %v; want nothing left to publish", err)
	}
}

func TestFacts_PublishFailsAgain_IsRetriedLater(t *testing.T) {
	b := setup(t)
	facts := b.readFacts()
	o := b.orchestrator()
	o.bus.set(factsOnly, false)
	id := b.request(o, "i-1")[0]
	if err := o.PublishFacts(t.Context()); err == nil {
		t.Error("no error although the bus rejects the facts")
	}
	o.bus.set(nil, false)
	require.NoError(t, o.PublishFacts(t.Context())) // not yet
	facts.want(id)
	b.clock.Advance(factsPause)
	require.NoError(t, o.PublishFacts(t.Context()))
	facts.want(id, begun...)
}

// stuckBus is a bus on which a publication of facts waits until its context ends.
type stuckBus struct {
	*bus.Bus
	waits chan struct{}
}

func (s stuckBus) Publish(ctx context.Context, msgs ...bus.Message) error {
	if !slices.ContainsFunc(msgs, func(m bus.Message) bool { return factsOnly(m.Subject) }) {
		return s.Bus.Publish(ctx, msgs...)
	}
	select {
	case s.waits <- struct{}{}:
		<-ctx.Done()
	case <-ctx.Done():
	}
	return ctx.Err()
}

func TestFacts_StreamDoesNotAnswer_SweepIsNotDelayed(t *testing.T) {
	b := setup(t)
	killed, o := b.orchestrator(), b.orchestrator()
	killed.bus.set(factsOnly, false)
	id := b.request(killed, "i-1")[0] // its facts are not published
	b.retryNow(id)
	b.deliver(killed, 1)
	b.clock.Advance(b.row(id).DueAt.Sub(b.clock.Now()))
	stuck := stuckBus{Bus: b.bus, waits: make(chan struct{})}
	o.deps.Publisher = stuck
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, timer.New(timer.Config{Every: time.Second}, b.store, b.clock.Now, testkit.Logger(t)).Sweep(ctx, o))
	b.published(id, b.row(id).Cursor, 1)
	ended := make(chan error)
	go func() { ended <- o.RunFacts(ctx) }()
	select {
	case <-stuck.waits:
	case <-ctx.Done():
		t.Error("no facts are published beside the sweep")
	}
	cancel()
	require.NoError(t, <-ended)
}

// Each fact without an answer costs a batch five seconds. If each batch waited, its messages would be redelivered, and their facts sent again.
func TestFacts_NoAnswer_AreTriedOncePerPause(t *testing.T) {
	b := setup(t)
	facts := b.readFacts()
	o := b.orchestrator()
	o.bus.silent = true
	o.bus.set(factsOnly, false)
	id := b.request(o, "i-1")[0]
	if o.bus.unanswered != 1 {
		t.Fatalf("%d facts are sent with the first batch, want one", o.bus.unanswered)
	}
	first := b.row(id).Cursor
	b.finish(o, id)
	b.answer(id, first, nil) // a duplicate
	b.deliver(o, 1)
	if o.bus.unanswered != 1 {
		t.Errorf("%d facts are sent during the pause, want none", o.bus.unanswered-1)
	}
	b.inStream(event.StreamResults, 0)
	b.clock.Advance(factsPause)
	if err := o.PublishFacts(t.Context()); err == nil || !o.outbox.factsPaused() {
		t.Errorf("error %v, paused %t; want another pause after the facts had no answer again", err, o.outbox.factsPaused())
	}
	o.bus.set(nil, false)
	b.clock.Advance(factsPause)
	require.NoError(t, o.PublishFacts(t.Context()))
	facts.want(id, finished...)
}

// A duplicate result has no effect; only the facts of its own transition are published again.
func TestFacts_DuplicateResult_PublishesThemAgain(t *testing.T) {
	b := setup(t)
	facts := b.readFacts()
	o := b.orchestrator()
	id := b.request(o, "i-1")[0]
	first := b.row(id).Cursor
	b.finish(o, id)
	facts.want(id, finished...)
	b.exec(`UPDATE orchestrator.history SET cursor = cursor + 100 WHERE operation_id = $1 AND cursor > 2`, id)
	b.exec(`UPDATE orchestrator.operations SET cursor = cursor + 100 WHERE id = $1`, id)
	b.answer(id, first, nil)
	b.deliver(b.orchestrator(), 1)
	testkit.Eventually(t, patience, "the fact of the result is published again", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(facts.seen[id]) == len(finished)+1 && facts.seen[id][len(finished)] == "2 step-finished"
	})
	b.answer(id, 1<<40, nil) // no such command
	b.deliver(o, 1)
	b.inStream(event.StreamDead, 0)
}

func TestReplayFacts_AfterTheStreamWasLost_PublishesAllSinceATime(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	early := b.request(o, "i-1")[0]
	b.finish(o, early)
	b.clock.Advance(time.Hour)
	late := b.request(o, "i-1")[0]
	b.answer(late, b.row(late).Cursor, func(r *event.StepSucceeded) {
		r.StartedAt, r.FinishedAt = b.clock.Now(), b.clock.Now()
	})
	b.deliver(o, 1)
	require.NoError(t, b.bus.JetStream().DeleteStream(t.Context(), string(event.StreamFacts)))
	require.NoError(t, b.bus.EnsureStreams(t.Context()))
	for _, c := range []struct {
		name  string
		since time.Time
		early []string
		facts int
	}{
		{"of the last minute", b.clock.Now().Add(-time.Minute), nil, len(oneDone)},
		{"all", epoch, finished, len(finished) + len(oneDone)},
	} {
		t.Run(c.name, func(t *testing.T) {
			facts := b.readFacts()
			n, next, err := o.ReplayFacts(context.Background(), c.since, "")
			if n != c.facts || next != "" || err != nil {
				t.Errorf("%d facts, next %q, error %v; want %d", n, next, err, c.facts)
			}
			facts.want(late, oneDone...)
			facts.want(early, c.early...)
		})
	}
}

func TestReplayFacts_LongHistory_HasNoGaps(t *testing.T) {
	b := setup(t)
	facts := b.readFacts()
	o := b.orchestrator()
	id := b.request(o, "i-1")[0]
	tries := 2*entriesPage + 7
	b.exec(`INSERT INTO orchestrator.history (operation_id, cursor, stage, step, stage_attempt, step_attempt, started_at, finished_at, kind)
		SELECT $1, n, 0, 0, n, n, $2, $2, 'retry' FROM generate_series(2, $3) AS n`, id, epoch, tries)
	b.exec(`UPDATE orchestrator.operations SET cursor = $2 WHERE id = $1`, id, tries)
	n, _, err := o.ReplayFacts(t.Context(), epoch, "")
	require.NoError(t, err)
	if n != tries {
		t.Errorf("%d facts published, want %d", n, tries)
	}
	want := []string{"1 operation-started"}
	for i := 2; i <= tries; i++ {
		want = append(want, fmt.Sprint(i, " step-finished"))
	}
	slices.Sort(want)
	facts.want(id, want...)
	if diff := cmp.Diff(tries+1, len(facts.seen[id])); diff != "" { // the start was published before
		t.Errorf("facts (-want +got):\n%s", diff)
	}
	// A message of an early transition comes again: more than a page of entries follows it.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n, err = o.outbox.publishHistory(ctx, []store.FactRange{{OperationID: id, After: 1, Through: 5}}, time.Time{})
	require.NoError(t, err)
	require.Equal(t, 4, n)
}
