package simulation_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
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

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

const (
	// many is how many schedules run without the race detector, and few with it.
	many = 100_000
	few  = 1_000
	// leastCoverage is the part of the engine's statements that the schedules reach at least, in percent.
	leastCoverage = 95
)

// Variables that say what runs; docs/contributor.md has them.
const (
	envSchedules = "KEB_SIMULATION_SCHEDULES"
	envSeed      = "KEB_SIMULATION_SEED"
	envFor       = "KEB_SIMULATION_FOR"
)

// runner runs schedules, one after the other.
type runner struct {
	apply  applyFunc
	bug    bug
	pools  *pools
	counts counts
	// metrics and threads cost more to make than a schedule.
	metrics *dispatch.Metrics
	threads threads
}

func newRunner(p *pools) *runner {
	return &runner{apply: engine.Apply, pools: p, counts: counts{ends: map[event.OperationState]int64{}}, metrics: dispatch.NewMetrics(nil)}
}

// run runs a schedule until it breaks an invariant; nil if it does not.
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

// report shrinks a schedule that breaks an invariant, and says how to see it again.
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

// runAll runs the schedules of seeds from first on, on all processors, until there are enough of them or the time is over. The
// problem is that of the first schedule which breaks an invariant.
func runAll(first, schedules uint64, until time.Time) (total counts, took time.Duration, problem string) {
	defer debug.SetGCPercent(debug.SetGCPercent(1000)) // many small schedules, little that stays
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

// number is that of an environment variable, or the other one.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoErrorf(t, err, "%s", name)
	return n
}

func TestSimulation_EverySchedule_KeepsInvariants(t *testing.T) {
	t.Parallel()
	if os.Getenv(envSeed) != "" {
		seed := number(t, envSeed, 0)
		s, r := newSchedule(seed), newRunner(&pools{})
		defer r.threads.close()
		if v := r.run(s, nil); v != nil {
			t.Fatal(r.report(seed, s, v))
		}
		t.Logf("seed %d breaks no invariant", seed)
		return
	}
	schedules := number(t, envSchedules, many)
	if testkit.RaceDetector() || testing.Short() {
		schedules = few
	}
	total, took, problem := runAll(0, schedules, time.Time{})
	if problem != "" {
		t.Fatal(problem)
	}
	t.Logf("%d schedules in %.1f s, %.0f a second\n%s", total.schedules, took.Seconds(), float64(total.schedules)/took.Seconds(), &total)
	if never := total.never(); schedules >= many && len(never) > 0 {
		t.Errorf("these never happened: %s", strings.Join(never, ", "))
	}
}

var coverage = regexp.MustCompile(`coverage: ([0-9.]+)% of statements`)

// Under the race detector a schedule takes ten times as long and finds nothing more: nothing in it is concurrent. So the tests build
// themselves without it, with the coverage of the engine.
func TestSimulation_ManySchedules_KeepInvariants(t *testing.T) {
	t.Parallel()
	if testing.Short() || !testkit.RaceDetector() {
		t.Skip("make test runs this test: without the race detector the other tests of this package run all schedules")
	}
	binary := filepath.Join(t.TempDir(), "simulation.test")
	output := command(t, "go", "test", "-c", "-race=false", "-cover", "-coverpkg=github.com/kyma-project/keb/services/orchestrator/internal/engine",
		"-o", binary, ".")
	t.Logf("built: %s", output)
	output = command(t, binary, "-test.v", "-test.run", "^(TestSimulation_EverySchedule_KeepsInvariants|TestSimulation_PlantedBugs_AreFound)$")
	t.Logf("%s", output)
	match := coverage.FindStringSubmatch(output)
	if match == nil {
		t.Fatal("the output says nothing about coverage")
	}
	if percent, err := strconv.ParseFloat(match[1], 64); err != nil || percent < leastCoverage {
		t.Errorf("the schedules reach %s %% of the engine, want at least %d %%", match[1], leastCoverage)
	}
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 14*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	// As the kube-apiserver is built, so that what both need is compiled once.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, output)
	}
	return string(output)
}

// TestSoak runs schedules that nobody has run before for as long as the environment says.
func TestSoak(t *testing.T) {
	text := os.Getenv(envFor)
	if text == "" {
		t.Skip("make soak SUITE=simulation runs this test")
	}
	long, err := time.ParseDuration(text)
	require.NoErrorf(t, err, "%s", envFor)
	first := number(t, envSeed, uint64(time.Now().UnixNano()))
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
		t.Errorf("these never happened: %s", strings.Join(never, ", "))
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
