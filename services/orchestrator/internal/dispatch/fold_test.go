package dispatch

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/orchestrator/internal/overlay"
)

// offline is a bus that confirms every message and holds none.
type offline struct{}

func (offline) Publish(context.Context, ...bus.Message) error { return nil }

func (offline) Range(context.Context, event.Stream) (bus.StreamRange, error) {
	return bus.StreamRange{First: 1}, nil
}

// parcel is a delivery that is not on a bus.
type parcel struct {
	event   cloudevents.Event
	subject string
}

func (p parcel) Message() (cloudevents.Event, string) { return p.event, p.subject }

func (parcel) Ack() error { return nil }

func (parcel) Nak(time.Duration) error { return nil }

func (parcel) Dead(context.Context, string) error { return nil }

// loop drives one operation without a bus.
type loop struct {
	*bundle
	*Dispatcher
	id string
}

// startLoop starts an operation of the type upgradeCluster, which may run for a day.
func startLoop(t *testing.T) *loop {
	t.Helper()
	b := setup(t)
	definitions, err := overlay.NewDefinitions(t.Context(), b.store, b.set, epoch)
	require.NoError(t, err)
	d, err := New(Config{}, Deps{
		Store: Postgres{Store: b.store}, Publisher: offline{}, Backlog: offline{}, Definitions: definitions, Workers: workers(true),
		Purger: NewPurger(emptyMemory{}, testkit.Logger(t)), Now: b.clock.Now, Wake: func(time.Time) {},
	})
	require.NoError(t, err)
	l := &loop{bundle: b, Dispatcher: d}
	l.id = b.publishRequests(event.Operation{Type: event.UpgradeCluster, InstanceID: "i-1"})[0]
	require.NoError(t, d.Requests(t.Context(), Deliveries(b.take(b.requests, 1))))
	return l
}

// answerNow answers the command in flight; without an error the step succeeds.
func (l *loop) answerNow(failure *event.Error) {
	l.t.Helper()
	r := l.current(l.id)
	e := l.resultEvent(event.TypeStepSucceeded, r, &event.StepSucceeded{Result: r})
	if failure != nil {
		e = l.resultEvent(event.TypeStepRetry, r, &event.StepRetry{Result: r, Error: failure})
	}
	require.NoError(l.t, l.Results(l.t.Context(), []Delivery{parcel{e, event.ResultSubject(r.Worker.Name, r.Step)}}))
}

// stored returns the number of rows of the history and their size.
func (l *loop) stored() (rows, bytes int) {
	l.t.Helper()
	err := l.db.QueryRow(`SELECT count(*), sum(pg_column_size(h.*)) FROM orchestrator.history h WHERE operation_id = $1`, l.id).Scan(&rows, &bytes)
	require.NoError(l.t, err)
	return rows, bytes
}

func TestFoldHistories_LoopOfSixHours_FitsIntoAHundredRows(t *testing.T) {
	for _, c := range []struct {
		name string
		// step is the step that is retried: the third one alone, the second one with its stage.
		step    string
		message func(i int) string
		lines   int
	}{
		{"the same message", "Three", func(int) string { return "status 503: the service is not available" }, 5},
		{"messages that differ", "Three", func(i int) string { return fmt.Sprintf("status 503: the service is not available (request %08d)", i) }, 31},
		{"a repeated stage", "Two", func(int) string { return "status 503: the service is not available" }, 4},
		{"a repeated stage and messages that differ", "Two", func(i int) string { return fmt.Sprintf("status 503 (request %08d)", i) }, 31},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := startLoop(t)
			tries, most, largest := 0, 0, 0
			for l.clock.Now().Sub(epoch) < 6*time.Hour {
				row := l.row(l.id)
				switch step := l.set[event.UpgradeCluster].At(row.Stage, row.Step); {
				case row.Waiting():
					l.clock.Advance(row.DueAt.Sub(l.clock.Now()))
					_, err := l.Due(t.Context(), true)
					require.NoError(t, err)
					l.RecordFacts(t.Context())
					require.NoError(t, l.FoldHistories(t.Context()))
					if tries%7 == 0 {
						rows, bytes := l.stored()
						most, largest = max(most, rows), max(largest, bytes)
					}
				case step.Name == c.step:
					l.answerNow(&event.Error{Component: "ext", Reason: "err_http_503", Message: c.message(tries)})
					tries++
				default:
					l.answerNow(nil)
				}
			}
			history, err := l.store.History(t.Context(), l.id)
			require.NoError(t, err)
			rows, bytes := l.stored()
			t.Logf("%d tries: %d rows with %d bytes at the end, at most %d rows and %d bytes, shown as %d lines", tries, rows, bytes, most, largest, len(history))
			if most > 100 || largest > 100_000 {
				t.Errorf("at most %d rows with %d bytes, want 100 rows with 100 kB", most, largest)
			}
			recorded, last := 0, ""
			for _, e := range history {
				if e.Error != nil {
					recorded, last = recorded+e.Tries(), e.Error.Message
				}
			}
			if len(history) != c.lines || recorded != tries || last != c.message(tries-1) {
				t.Errorf("%d lines with %d tries and the last error %q, want %d with %d and %q", len(history), recorded, last, c.lines, tries, c.message(tries-1))
			}
		})
	}
}

// retryNow publishes a retry for the command in flight.
func (b *bundle) retryNow(id string) {
	b.t.Helper()
	r := b.current(id)
	b.publishResult(r.Worker.Name, event.TypeStepRetry, r, &event.StepRetry{Result: r, Error: &event.Error{Component: "ext", Reason: "down", Message: "not yet"}})
}

// again continues an operation after a retry, and runs the end of a sweep.
func (b *bundle) again(o *orchestrator, id string) {
	b.t.Helper()
	b.clock.Advance(b.row(id).DueAt.Sub(b.clock.Now()))
	_, err := o.Due(b.t.Context(), true)
	require.NoError(b.t, err)
	o.RecordFacts(b.t.Context())
	require.NoError(b.t, o.PublishFacts(b.t.Context()))
	require.NoError(b.t, o.FoldHistories(b.t.Context()))
}

func TestFoldHistories_KilledBeforePublication_PublishesTheFactsOfEveryTry(t *testing.T) {
	b := setup(t)
	facts := b.readFacts()
	killedOne := b.orchestrator()
	id := b.requestAll(killedOne, event.Operation{Type: event.Provision, InstanceID: "i-1"})[0]
	want := slices.Clone(begun)
	try := func() {
		b.retryNow(id)
		want = append(want, fmt.Sprint(b.row(id).Cursor+1, " step-finished"))
	}
	for range 3 {
		try()
		b.deliver(killedOne, 1)
		b.again(killedOne, id)
	}
	// The try is committed, its fact is not published, and its message is not acknowledged.
	try()
	lost := b.take(b.results, 1)
	killedOne.bus.set(func(string) bool { panic("killed") }, false)
	func() {
		defer func() {
			if recover() == nil {
				t.Fatal("the orchestrator was not killed")
			}
		}()
		_ = killedOne.Results(t.Context(), lost)
	}()
	o := b.orchestrator()
	b.again(o, id)
	for range 20 {
		try()
		b.deliver(o, 1)
		b.again(o, id)
	}
	if rows := len(b.history(id)); rows != 25 {
		t.Errorf("%d rows while a message is not acknowledged, want all 25", rows)
	}
	require.NoError(t, lost[0].Nak(0))
	b.deliver(o, 1) // the redelivery
	slices.Sort(want)
	facts.want(id, want...)
	b.inStream(event.StreamResults, 0)
	for range 2 {
		try()
		b.deliver(o, 1)
		b.inStream(event.StreamResults, 0)
		b.again(o, id)
	}
	if rows := len(b.history(id)); rows > 10 {
		t.Errorf("%d rows after the message is acknowledged, want the start and a few tries", rows)
	}
	slices.Sort(want)
	facts.want(id, want...)
	history, err := b.store.History(t.Context(), id)
	require.NoError(t, err)
	if len(history) != 2 || history[1].Tries() != 26 {
		t.Errorf("history %+v, want the start and one line of 26 tries", history)
	}
}

func TestFoldHistories_FactsNotPublished_AreKept(t *testing.T) {
	b := setup(t)
	facts := b.readFacts()
	o := b.orchestrator()
	id := b.requestAll(o, event.Operation{Type: event.Provision, InstanceID: "i-1"})[0]
	want := slices.Clone(begun)
	o.bus.set(factsOnly, false)
	for range 25 {
		b.retryNow(id)
		want = append(want, fmt.Sprint(b.row(id).Cursor+1, " step-finished"))
		b.deliver(o, 1)
		b.inStream(event.StreamResults, 0) // the operation does not wait for facts
		b.clock.Advance(b.row(id).DueAt.Sub(b.clock.Now()))
		_, err := o.Due(t.Context(), true)
		require.NoError(t, err)
		require.NoError(t, o.FoldHistories(t.Context()))
	}
	if rows := len(b.history(id)); rows != 26 {
		t.Errorf("%d rows before the facts are published, want all 26", rows)
	}
	o.bus.set(nil, false)
	b.clock.Advance(factsEvery)
	require.NoError(t, o.PublishFacts(t.Context()))
	slices.Sort(want)
	facts.want(id, want...)
}

func TestReplayFacts_FoldedTries_AreOneFact(t *testing.T) {
	t.Parallel()
	l := startLoop(t)
	for range 40 {
		row := l.row(l.id)
		if row.Waiting() {
			l.clock.Advance(row.DueAt.Sub(l.clock.Now()))
			_, err := l.Due(t.Context(), true)
			require.NoError(t, err)
			l.RecordFacts(t.Context())
			require.NoError(t, l.FoldHistories(t.Context()))
		}
		l.answerNow(&event.Error{Component: "ext", Reason: "down", Message: "not yet"})
	}
	rows, _ := l.stored()
	published, _, err := l.ReplayFacts(t.Context(), epoch, "")
	require.NoError(t, err)
	if published != rows || rows > 25 {
		t.Errorf("%d facts are published again for 80 tries in %d rows, want one for each row", published, rows)
	}
}

func TestFoldHistories_AnotherOneFolds_FoldsLater(t *testing.T) {
	t.Parallel()
	l := startLoop(t)
	retry := func() {
		l.answerNow(&event.Error{Component: "ext", Reason: "err_http_503", Message: "no"})
		l.clock.Advance(l.row(l.id).DueAt.Sub(l.clock.Now()))
		_, err := l.Due(t.Context(), true)
		require.NoError(t, err)
	}
	for l.row(l.id).Cursor < foldAfter {
		retry()
	}
	l.RecordFacts(t.Context())
	before, _ := l.stored()
	other, err := l.db.Beginx()
	require.NoError(t, err)
	// In its own transaction, as another orchestrator.
	_, err = other.Exec(`SELECT pg_advisory_xact_lock($1)`, int64(0x6b65620003))
	require.NoError(t, err)
	require.NoError(t, l.FoldHistories(t.Context()))
	if rows, _ := l.stored(); rows != before {
		t.Fatalf("%d of %d rows while another one folds", rows, before)
	}
	require.NoError(t, other.Rollback())
	require.NoError(t, l.FoldHistories(t.Context()))
	if rows, _ := l.stored(); rows >= before {
		t.Errorf("%d of %d rows, want fewer", rows, before)
	}
}
