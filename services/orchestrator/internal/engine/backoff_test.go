package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

const backOff = `
operation: provision
timeout: 24h
stages:
  - name: create
    steps:
      - {name: A, worker: alpha, execution: 1m, retry: {every: 10s, max: 1m, factor: 2}}
      - {name: B, worker: alpha, execution: 1m, retry: {every: 10s, max: 1m, factor: 2, scope: step}}
`

// delay returns the time until the operation continues, and lets it continue.
func (r *run) delay() time.Duration {
	r.t.Helper()
	after := r.s.DueAt.Sub(r.now)
	r.sleep(after)
	return after
}

func TestBackOff_ErrorsInARow_GrowUpToTheMaximum(t *testing.T) {
	for _, step := range []string{"A", "B"} {
		t.Run(step, func(t *testing.T) {
			r := started(t, backOff)
			if step == "B" {
				r.succeed()
			}
			var got []time.Duration
			for range 5 {
				r.retry(0)
				got = append(got, r.delay())
			}
			want := []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute, time.Minute}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("intervals (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBackOff_PollOrSuccess_StartsAgain(t *testing.T) {
	poll := func(r *run) { r.result(engine.Result{Outcome: event.OutcomeRetry}); r.delay() }
	for name, between := range map[string]func(r *run){
		"a poll":    poll,
		"two polls": func(r *run) { poll(r); poll(r) },
		"a success and a lost stage": func(r *run) {
			r.succeed()
			r.result(engine.Result{Outcome: event.OutcomeStageLost})
			r.delay()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := started(t, backOff)
			for range 3 {
				r.retry(0)
				r.delay()
			}
			between(r)
			r.retry(0)
			if got := r.delay(); got != 10*time.Second {
				t.Errorf("the next try is after %s, want 10s", got)
			}
		})
	}
}

func TestBackOff_NoAnswer_CountsAsAFailure(t *testing.T) {
	r := started(t, backOff)
	r.sleep(time.Minute)
	r.sleep(time.Minute)
	r.retry(0)
	if got := r.delay(); got != 40*time.Second {
		t.Errorf("after two hangs and an error the next try is after %s, want 40s", got)
	}
}

func TestBackOff_NoWorker_DoesNotCount(t *testing.T) {
	r := started(t, backOff)
	for range 5 {
		r.now = r.s.ExecuteBefore
		r.must(engine.Due{})
	}
	r.retry(0)
	if got := r.delay(); got != 10*time.Second {
		t.Errorf("the next try is after %s, want 10s", got)
	}
}

func TestBackOff_RetryAfterOfTheWorker_Wins(t *testing.T) {
	r := started(t, strings.ReplaceAll(backOff, "factor: 2", "factor: 2, jitter: 1"))
	for _, want := range []time.Duration{3 * time.Second, 5 * time.Minute} {
		r.retry(want)
		if got := r.delay(); got != want {
			t.Errorf("the next try is after %s, want %s", got, want)
		}
	}
}

func TestBackOff_WithoutFactor_KeepsTheIntervalAndTheState(t *testing.T) {
	r := started(t, provision)
	for range 3 {
		r.retry(0)
		if got := r.delay(); got != 10*time.Second {
			t.Errorf("the next try is after %s, want 10s", got)
		}
		if r.s.Tries["A"].Failures != 0 {
			t.Errorf("failures are counted: %+v", r.s.Tries)
		}
	}
}

func TestBackOff_BudgetEndsEarlier_IsTheLimit(t *testing.T) {
	r := started(t, strings.ReplaceAll(backOff, "factor: 2", "factor: 10, jitter: 1, timeout: 90s"))
	first := r.now
	for r.s.Status == event.InProgress {
		r.retry(0)
		if r.s.DueAt.After(first.Add(90 * time.Second)) {
			t.Fatalf("due at %s, after the end of the budget", r.s.DueAt)
		}
		if r.s.Status == event.InProgress {
			r.delay()
		}
	}
	if got := r.now.Sub(first); got != 90*time.Second {
		t.Errorf("the operation failed after %s, want the budget of 90s", got)
	}
}

// Ten thousand operations that fail in the same second must not return in the same second.
func TestBackOff_Jitter_SpreadsOperations(t *testing.T) {
	const operations = 10_000
	yaml := strings.ReplaceAll(backOff, "factor: 2", "factor: 2, jitter: 0.5")
	p := load(t, yaml)
	perSecond := make([][]int, 4) // after 1 to 4 errors
	for i := range perSecond {
		perSecond[i] = make([]int, 91)
	}
	for i := range operations {
		now, s := epoch, engine.New(event.Operation{ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), Type: event.Provision})
		apply := func(e engine.Event) {
			next, _, err := engine.Apply(p, s, e, now)
			require.NoError(t, err)
			s = next
		}
		apply(engine.Start{})
		for failures := range perSecond {
			apply(engine.Result{Outcome: event.OutcomeRetry, Cursor: s.AwaitedCursor(), Error: &event.Error{Component: "ext", Message: "down"}})
			perSecond[failures][int(s.DueAt.Sub(now)/time.Second)]++
			now = s.DueAt
			apply(engine.Due{WorkerAlive: true})
		}
	}
	var table strings.Builder
	for i, every := range []int{10, 20, 40, 60} {
		from, to, most := -1, 0, 0
		for second, n := range perSecond[i] {
			if n > 0 && from < 0 {
				from = second
			}
			if n > 0 {
				to = second
			}
			most = max(most, n)
		}
		fmt.Fprintf(&table, "  after error %d: from second %2d to %2d, at most %5d in one second\n", i+1, from, to, most)
		if from != every/2 || to != every*3/2-1 {
			t.Errorf("after error %d the operations return from second %d to %d, want from %d to %d", i+1, from, to, every/2, every*3/2-1)
		}
		if limit := operations / every * 3 / 2; most > limit {
			t.Errorf("after error %d, %d operations return in one second, want at most %d", i+1, most, limit)
		}
	}
	t.Logf("%d operations that failed in the same second, jitter 0.5, return\n%s", operations, &table)
}
