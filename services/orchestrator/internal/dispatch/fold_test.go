package dispatch

import (
	"context"
	"fmt"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/orchestrator/internal/definition"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
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
	definitions, err := definition.New(t.Context(), b.store, b.set, epoch)
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
	row := l.row(l.id)
	worker, command := engine.Command(l.set[event.UpgradeCluster], &row.State)
	result := event.Result{
		OperationID: l.id, Cursor: command.Cursor, Stage: command.Stage, Step: command.Step, Worker: event.Worker{Name: worker, Version: "1.0.0"},
		StartedAt: l.clock.Now(), FinishedAt: l.clock.Now(),
	}
	var data any = &event.StepSucceeded{Result: result}
	kind := event.TypeStepSucceeded
	if failure != nil {
		kind, data = event.TypeStepRetry, &event.StepRetry{Result: result, Error: failure}
	}
	e, err := bus.New(kind, event.DispatchID(l.id, command.Cursor, 1), event.WorkerSource(worker), l.id, l.clock.Now(), data)
	require.NoError(l.t, err)
	require.NoError(l.t, l.Results(l.t.Context(), []Delivery{parcel{e, event.ResultSubject(worker, command.Step)}}))
}

// stored returns the number of rows of the history and their size.
func (l *loop) stored() (rows, bytes int) {
	l.t.Helper()
	err := l.db.QueryRow(`SELECT count(*), sum(pg_column_size(h.*)) FROM orchestrator.history h WHERE operation_id = $1`, l.id).Scan(&rows, &bytes)
	require.NoError(l.t, err)
	return rows, bytes
}

func TestFoldHistories_LoopOfADay_FitsIntoAHundredRows(t *testing.T) {
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
			for l.clock.Now().Sub(epoch) < 24*time.Hour {
				row := l.row(l.id)
				switch step := l.set[event.UpgradeCluster].At(row.Stage, row.Step); {
				case row.Waiting():
					l.clock.Advance(row.DueAt.Sub(l.clock.Now()))
					_, err := l.Due(t.Context())
					require.NoError(t, err)
					require.NoError(t, l.PublishFacts(t.Context()))
					require.NoError(t, l.FoldHistories(t.Context()))
					if tries%10 == 0 {
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
