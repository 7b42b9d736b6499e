package simulation_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/orchestrator/internal/dispatch"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// A schedule is sequential: a task is a coroutine.
func TestMain(m *testing.M) {
	os.Exit(testkit.WithoutRace(func() int { return covering(func() int { return pgtest.Run(m) }) },
		"-cover", "-coverpkg=github.com/kyma-project/keb/services/orchestrator/internal/engine"))
}

// covering runs the tests, and fails if they reach too few statements of the engine. A run of some of the tests or schedules is not checked.
func covering(run func() int) (code int) {
	flag.Parse()
	some := flag.Lookup("test.run").Value.String() != "" || testing.Short() || os.Getenv(envSchedules)+os.Getenv(envSeed)+os.Getenv(envFor) != ""
	if testing.CoverMode() == "" || some {
		return run()
	}
	profile := flag.Lookup("test.coverprofile").Value
	if profile.String() == "" {
		dir, err := os.MkdirTemp("", "keb-simulation-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		if err := profile.Set(filepath.Join(dir, "engine.out")); err != nil {
			panic(err)
		}
	}
	if code = run(); code != 0 {
		return code
	}
	reached, err := coverage(profile.String())
	if err != nil || reached < minCoverage {
		fmt.Printf("the tests reach %.1f %% of the engine, want at least %.0f %%; error %v\n", 100*reached, 100*minCoverage, err)
		return 1
	}
	return 0
}

// coverage returns the part of the statements of a coverage profile that were reached.
func coverage(profile string) (float64, error) {
	text, err := os.ReadFile(profile)
	if err != nil {
		return 0, err
	}
	var reached, all int
	for line := range strings.Lines(string(text)) {
		var statements, count int
		if _, place, ok := strings.Cut(line, " "); ok && !strings.HasPrefix(line, "mode:") {
			if _, err := fmt.Sscan(place, &statements, &count); err != nil {
				return 0, fmt.Errorf("line %q: %w", line, err)
			}
		}
		all += statements
		if count > 0 {
			reached += statements
		}
	}
	if all == 0 {
		return 0, errors.New("the profile has no statements")
	}
	return float64(reached) / float64(all), nil
}

const (
	// many is the number of schedules, and few the number in a short run.
	many = 100_000
	few  = 1_000
	// minCoverage is the minimum coverage of the engine's statements.
	minCoverage = 0.95
)

// Environment variables that select the schedules, documented in docs/contributor.md.
const (
	envSchedules = "KEB_SIMULATION_SCHEDULES"
	envSeed      = "KEB_SIMULATION_SEED"
	envFor       = "KEB_SIMULATION_FOR"
)

// runner runs schedules sequentially.
type runner struct {
	apply  applyFunc
	bug    bug
	pools  *pools
	counts counts
	// metrics and threads are reused, because creating them is expensive.
	metrics *dispatch.Metrics
	threads threads
}

func newRunner(p *pools) *runner {
	return &runner{apply: engine.Apply, pools: p, counts: counts{ends: map[event.OperationState]int64{}}, metrics: dispatch.NewMetrics(nil)}
}

// run runs a schedule and returns the first violation of an invariant; nil if there is none.
func (r *runner) run(s *schedule, log *[]string) (broken *violation) {
	w := r.newWorld(s, log != nil)
	defer w.close()
	defer func() {
		switch v := recover().(type) {
		case nil:
		case violation:
			broken = &v
			w.trace("VIOLATION: %s", v.text)
		default:
			broken = &violation{format: "panic", text: fmt.Sprintf("panic: %v\n%s", v, debug.Stack())}
		}
		if log != nil {
			*log = w.log
		}
	}()
	for _, c := range s.choices {
		w.do(c)
	}
	w.settle()
	w.checkEnd()
	r.counts.schedules++
	r.counts.choices += int64(len(s.choices))
	return nil
}

// report shrinks a schedule that violates an invariant, and returns a report with the seed.
func (r *runner) report(seed uint64, s *schedule, v *violation) string {
	small := r.shrink(s, v)
	var log []string
	again := r.run(small, &log)
	if again == nil {
		again = v
	}
	return fmt.Sprintf("seed %d: %s\nshrunk from %d choices to %d: %s\n%s\nschedule: %s\n%s=%d runs it again",
		seed, v.text, len(s.choices), len(small.choices), again.text, strings.Join(log, "\n"), small, envSeed, seed)
}

// runAll runs the schedules of the seeds from first on all processors, until their number or the time is reached. It returns the
// report of the first schedule that violates an invariant.
func runAll(first, schedules uint64, until time.Time) (total counts, took time.Duration, problem string) {
	defer debug.SetGCPercent(debug.SetGCPercent(1000)) // many short-lived objects, small heap
	shared, start := &pools{}, time.Now()
	var next atomic.Uint64
	var stop atomic.Bool
	var mu sync.Mutex
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			r := newRunner(shared)
			defer r.threads.close()
			for n := next.Add(1) - 1; n < schedules && !stop.Load(); n = next.Add(1) - 1 {
				s := newSchedule(first + n)
				v := r.run(s, nil)
				if v == nil && (until.IsZero() || time.Now().Before(until)) {
					continue
				}
				if stop.Swap(true) || v == nil {
					break
				}
				text := r.report(first+n, s, v)
				mu.Lock()
				problem = text
				mu.Unlock()
			}
			mu.Lock()
			defer mu.Unlock()
			total.add(&r.counts)
		})
	}
	all.Wait()
	return total, time.Since(start), problem
}

func TestSimulation_EverySchedule_KeepsInvariants(t *testing.T) {
	t.Parallel()
	if os.Getenv(envSeed) != "" {
		seed := testkit.Number(t, envSeed, 0, 0)
		s, r := newSchedule(seed), newRunner(&pools{})
		defer r.threads.close()
		if v := r.run(s, nil); v != nil {
			t.Fatal(r.report(seed, s, v))
		}
		t.Logf("seed %d breaks no invariant", seed)
		return
	}
	schedules := testkit.Number(t, envSchedules, many, 1)
	if testing.Short() {
		schedules = few
	}
	total, took, problem := runAll(0, schedules, time.Time{})
	if problem != "" {
		t.Fatal(problem)
	}
	t.Logf("%d schedules in %.1f s, %.0f a second\n%s", total.schedules, took.Seconds(), float64(total.schedules)/took.Seconds(), &total)
	if never := total.never(); schedules >= many && len(never) > 0 {
		t.Errorf("events that never happened: %s", strings.Join(never, ", "))
	}
}

// TestSoak runs schedules with new seeds for the time in the environment.
func TestSoak(t *testing.T) {
	text := os.Getenv(envFor)
	if text == "" {
		t.Skip("make soak SUITE=simulation runs this test")
	}
	long, err := time.ParseDuration(text)
	require.NoErrorf(t, err, "%s", envFor)
	first := testkit.Number(t, envSeed, uint64(time.Now().UnixNano()), 0)
	fmt.Printf("simulation: seeds from %d on, for %s\n", first, long)
	start := time.Now()
	end := start.Add(long)
	var total counts
	for now := start; now.Before(end); now = time.Now() {
		until := now.Add(time.Minute)
		if until.After(end) {
			until = end
		}
		some, _, problem := runAll(first+uint64(total.schedules), 1<<62, until)
		total.add(&some)
		if problem != "" {
			t.Fatal(problem)
		}
		took := time.Since(start)
		fmt.Printf("simulation: %s: %d schedules, %.0f a second, no violation\n", took.Round(time.Second), total.schedules, float64(total.schedules)/took.Seconds())
	}
	fmt.Print(&total)
	if never := total.never(); total.schedules > many && len(never) > 0 {
		t.Errorf("events that never happened: %s", strings.Join(never, ", "))
	}
}

func TestSimulation_SameSeed_RepeatsTheSchedule(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		var first, second []string
		for _, log := range []*[]string{&first, &second} {
			r := newRunner(&pools{})
			r.run(newSchedule(seed), log)
			r.threads.close()
		}
		if diff := cmp.Diff(first, second); diff != "" || len(first) == 0 {
			t.Fatalf("seed %d: %d lines, the second run differs:\n%s", seed, len(first), diff)
		}
	}
}
