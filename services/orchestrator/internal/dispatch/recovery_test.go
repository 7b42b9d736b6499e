package dispatch

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

func TestResult_CrashBeforePublication_RedeliveryPublishes(t *testing.T) {
	for _, c := range []struct {
		name      string
		taken     bool // the stream has the command, but its confirmation was lost
		restarted bool // the result is redelivered to a new orchestrator
		times     int
	}{
		{"of the same orchestrator", false, false, 1},
		{"of another one", false, true, 1},
		{"with a published command", true, true, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := setup(t)
			o := b.orchestrator()
			id := b.request(o, "i-1")[0]
			first := b.row(id).Cursor
			b.published(id, first, 1)
			b.answer(id, first, nil)
			o.bus.set(commandsOnly, c.taken)
			b.deliver(o, 1)
			committed := b.row(id)
			if committed.Step != 1 || committed.Cursor == first {
				t.Fatalf("the result has not been committed: step %d, cursor %d", committed.Step, committed.Cursor)
			}
			b.inStream(event.StreamResults, 1) // not acknowledged
			o.bus.set(nil, false)
			if c.restarted {
				o = b.orchestrator()
			}
			b.deliver(o, 1) // the redelivery
			b.published(id, committed.Cursor, c.times)
			b.inStream(event.StreamResults, 0)
			b.inStream(event.StreamCommands, 2) // the first command, and the second one without a duplicate
			if diff := cmp.Diff([]string{"-1 operation started", "0 succeeded"}, b.history(id)); diff != "" {
				t.Errorf("history (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequest_CrashBeforePublication_RedeliveryPublishes(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	o.bus.set(commandsOnly, false)
	id := b.request(o, "i-1")[0]
	cursor := b.row(id).Cursor
	o.bus.set(nil, false)
	require.NoError(t, o.Requests(t.Context(), b.take(b.requests, 1)))
	b.published(id, cursor, 1)
	b.inStream(event.StreamRequests, 0)
}

func TestResult_CachedRowIsOld_ReadsItAgain(t *testing.T) {
	for _, c := range []struct {
		name      string
		other     func(b *bundle, other *orchestrator, id string)
		conflicts int
		step      int
	}{
		// The command keeps its cursor; only the version differs.
		{"the command was sent again", func(b *bundle, other *orchestrator, _ string) {
			b.clock.Advance(time.Minute)
			if n, err := other.Due(t.Context(), true); n != 1 || err != nil {
				t.Errorf("%d commands sent again, error %v", n, err)
			}
		}, 1, 1},
		// The cursor is higher than that of the cached row.
		{"the operation moved on", func(b *bundle, other *orchestrator, id string) {
			if err := other.Act(t.Context(), id, engine.SkipStep{Step: "One", By: "me"}); err != nil {
				t.Error(err)
			}
		}, 0, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := setup(t)
			mine, other := b.orchestrator(), b.orchestrator()
			id := b.request(mine, "i-1")[0]
			c.other(b, other, id)
			b.answer(id, b.row(id).AwaitedCursor(), nil)
			b.deliver(mine, 1)
			if got := b.row(id); got.Step+2*got.Stage != c.step || count(mine.metrics.conflicts) != c.conflicts {
				t.Errorf("step %d, %d conflicts; want %d, %d", got.Step, count(mine.metrics.conflicts), c.step, c.conflicts)
			}
			b.inStream(event.StreamResults, 0)
		})
	}
}

func TestResult_TwoOrchestratorsReadIt_OneAppliesIt(t *testing.T) {
	b := setup(t)
	orchestrators := []*orchestrator{b.orchestrator(), b.orchestrator()}
	ids := b.request(orchestrators[0], instances(40)...)
	for range 2 {
		for _, id := range ids {
			b.answer(id, b.row(id).AwaitedCursor(), nil)
		}
	}
	var racing sync.WaitGroup
	for _, o := range orchestrators {
		batch := b.take(b.results, len(ids))
		racing.Go(func() {
			if err := o.Results(t.Context(), batch); err != nil {
				t.Error(err)
			}
		})
	}
	racing.Wait()
	for _, id := range ids {
		testkit.Eventually(t, patience, "the result counts", func() bool {
			select {
			case again := <-b.results: // after a deadlock a batch is redelivered
				require.NoError(t, orchestrators[0].Results(t.Context(), []*bus.Delivery{again}))
			default:
			}
			return b.row(id).Step == 1
		})
		if diff := cmp.Diff([]string{"-1 operation started", "0 succeeded"}, b.history(id)); diff != "" {
			t.Errorf("history (-want +got):\n%s", diff)
		}
	}
}
