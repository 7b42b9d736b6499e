package recovery_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/liveness"
	"github.com/kyma-project/keb/services/orchestrator/internal/recovery"
)

const (
	every         = time.Second
	settle        = 3 * time.Second
	workerTimeout = 10 * time.Second
	// redelivery is longer than the other times.
	redelivery = 20 * time.Second
	memory     = event.Stream("KV_" + event.StageBucket)
)

// fake implements the bus, the workers and the dispatcher. The test holds mu, except in pass.
type fake struct {
	mu      sync.Mutex
	start   time.Time
	created map[event.Stream]time.Time
	last    map[event.Stream]uint64
	ids     map[event.Stream][]string
	// unreadable means that the ids cannot be read.
	unreadable bool
	away       bool
	broken     bool
	taken      liveness.Taken
	asked      int
	losses     []loss
	// republished holds the times of the calls of AfterStart, and their arguments.
	republished [][2]time.Duration
	// skipped are the commands that the last call of AfterStart skipped.
	skipped []string
	// unserved is the number of commands without a worker.
	unserved int
	lapsed   time.Time
	// failed is the last time at which the bus could not be read.
	failed time.Time
}

type loss struct {
	Noticed, Before time.Duration
	ResultsOnly     bool
	Held            []string
}

func (f *fake) Range(_ context.Context, name event.Stream) (bus.StreamRange, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		f.failed = time.Now()
		return bus.StreamRange{}, errors.New("no server")
	}
	return bus.StreamRange{Created: f.created[name], Last: f.last[name]}, nil
}

func (f *fake) MessageIDs(_ context.Context, name event.Stream) (map[string]bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unreadable {
		f.failed = time.Now()
		return nil, errors.New("permissions violation")
	}
	ids := map[string]bool{}
	for _, id := range f.ids[name] {
		ids[id] = true
	}
	return ids, nil
}

func (f *fake) Taken(context.Context) (liveness.Taken, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return f.taken, nil
}

func (f *fake) held(held func(worker, commandID string) bool) (ids []string) {
	for _, c := range [][2]string{{"alpha", "op-1/4"}, {"alpha", "op-2/4"}, {"beta", "op-3/4"}} {
		if held(c[0], c[1]) {
			ids = append(ids, c[1])
		}
	}
	return ids
}

func (f *fake) AfterLoss(_ context.Context, before time.Time, resultsOnly bool, held func(worker, commandID string) bool) (int, int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := loss{Noticed: time.Since(f.start), Before: before.Sub(f.start), ResultsOnly: resultsOnly, Held: f.held(held)}
	f.losses = append(f.losses, l)
	if f.broken {
		return 0, 0, errors.New("the database is away")
	}
	return 3 - len(l.Held), f.unserved, nil
}

func (f *fake) AfterStart(_ context.Context, after time.Time, held func(worker, commandID string) bool) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.republished = append(f.republished, [2]time.Duration{time.Since(f.start), after.Sub(f.start)})
	f.skipped = f.held(held)
	if f.broken {
		return 0, errors.New("the bus rejects messages")
	}
	return 1, nil
}

func (f *fake) Lapsed() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lapsed
}

// runStarted runs a recovery with fake time. The streams are an hour old, and the recovery has checked them.
func runStarted(t *testing.T, test func(f *fake)) {
	t.Helper()
	runStarting(t, func(f *fake) {
		f.pass(2 * settle)
		if len(f.losses) != 1 || f.losses[0].Before != -time.Hour {
			t.Errorf("losses after the start are %+v, want one check for commands older than the streams", f.losses)
		}
		f.losses, f.asked, f.start = nil, 0, time.Now()
		test(f)
	})
}

// runStarting runs a recovery with fake time. The streams are an hour old, and the recovery has not checked them yet.
func runStarting(t *testing.T, test func(f *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{start: time.Now(), created: map[event.Stream]time.Time{}, last: map[event.Stream]uint64{}}
		f.recreate(-time.Hour, event.StreamCommands, event.StreamResults, memory)
		r := recovery.New(recovery.Config{
			Every: every, Timeout: every, Settle: settle, WorkerTimeout: workerTimeout, Redelivery: redelivery,
		}, recovery.Deps{Bus: f, Workers: f, Dispatcher: f, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
		f.mu.Lock()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		test(f)
		f.mu.Unlock()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
}

func (f *fake) pass(d time.Duration) {
	f.mu.Unlock()
	<-time.After(d + every/2) // fake time
	synctest.Wait()
	f.mu.Lock()
}

// recreate sets the creation time of streams, relative to now.
func (f *fake) recreate(at time.Duration, names ...event.Stream) {
	for _, name := range names {
		f.created[name] = time.Now().Add(at)
	}
}

func (f *fake) want(t *testing.T, want ...loss) {
	t.Helper()
	if diff := cmp.Diff(want, f.losses); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
}

func TestRecovery_NewStream_SendsCommandsOnce(t *testing.T) {
	for _, name := range []event.Stream{event.StreamCommands, event.StreamResults} {
		runStarted(t, func(f *fake) {
			f.taken.Commands = map[string]bool{"op-2/4": true}
			f.recreate(0, name)
			f.pass(time.Minute)
			f.want(t, loss{Noticed: 3500 * time.Millisecond, ResultsOnly: name == event.StreamResults, Held: []string{"op-2/4"}})
		})
	}
}

func TestRecovery_StreamsRecreatedInTurn_AreOneLoss(t *testing.T) {
	runStarted(t, func(f *fake) {
		f.recreate(-settle, event.StreamCommands)
		f.recreate(0, event.StreamResults)
		f.pass(time.Minute)
		f.want(t, loss{Noticed: 3500 * time.Millisecond})
	})
}

// A restarted server may have lost the ends of its streams. A command is lost if no worker has it, and no stream has it or its result.
func TestRecovery_BusRestarts_SendsOnlyLostCommands(t *testing.T) {
	for what, restart := range map[string]func(f *fake){
		"one server":                  func(f *fake) { f.recreate(0, memory) },
		"a cluster":                   func(f *fake) { f.last[memory] = 3 },
		"the end of a stream is lost": func(f *fake) { f.last[event.StreamCommands] = 99 },
		"a command lapses":            func(f *fake) { f.lapsed = time.Now() },
	} {
		runStarted(t, func(f *fake) {
			f.last = map[event.Stream]uint64{event.StreamCommands: 100, event.StreamResults: 100, memory: 10}
			f.pass(every)
			f.taken.Commands = map[string]bool{"op-3/4": true}
			f.ids = map[event.Stream][]string{event.StreamCommands: {"probe", "op-1/4/2"}, event.StreamResults: {"op-2/4/1"}}
			f.start = time.Now()
			restart(f)
			f.pass(time.Minute)
			if len(f.losses) != 1 || f.losses[0].ResultsOnly || f.losses[0].Before > every {
				t.Errorf("%s: losses %+v, want one of commands from before the restart", what, f.losses)
			}
			if diff := cmp.Diff([]string{"op-1/4", "op-2/4", "op-3/4"}, f.losses[0].Held); diff != "" {
				t.Errorf("%s: commands that are not lost (-want +got):\n%s", what, diff)
			}
		})
	}
}

// A cluster that has no leader yet may still store a command that it has received.
func TestRecovery_LapsedWhileBusAway_WaitsUntilItSettles(t *testing.T) {
	for what, bus := range map[string]func(f *fake, away bool){
		"streams":  func(f *fake, away bool) { f.away = away },
		"messages": func(f *fake, away bool) { f.unreadable = away },
	} {
		runStarted(t, func(f *fake) {
			f.lapsed = time.Now()
			f.pass(every)
			bus(f, true)
			f.pass(settle)
			bus(f, false)
			f.pass(time.Minute)
			failed := f.failed.Sub(f.start)
			if len(f.losses) != 1 || f.losses[0].Noticed < failed+settle || f.losses[0].Before > 0 || failed < settle {
				t.Errorf("%s: losses %+v, want one, of commands from before it was noticed, %s after the failure at %s", what, f.losses, settle, failed)
			}
		})
	}
}

// An orchestrator that was cut off sees a new stream late. The stream of commands still knows the numbers of its commands.
func TestRecovery_NewStreamIsNoticedLate_IsNoRestart(t *testing.T) {
	runStarted(t, func(f *fake) {
		f.last = map[event.Stream]uint64{event.StreamCommands: 100, event.StreamResults: 100, memory: 10}
		f.pass(every)
		f.start = time.Now()
		f.recreate(-2*settle, event.StreamResults)
		f.last[event.StreamResults] = 3
		f.pass(time.Minute)
		f.want(t, loss{Noticed: settle + every, Before: -2 * settle, ResultsOnly: true})
	})
}

// After the window the stream no longer drops a second copy.
func TestRecovery_IDsCannotBeRead_GivesUpAfterTheWindow(t *testing.T) {
	runStarted(t, func(f *fake) {
		f.unreadable = true
		f.recreate(0, memory)
		f.pass(event.DuplicateWindow + settle + 2*every)
		f.unreadable = false
		f.pass(time.Minute)
		f.want(t)
	})
}

// Without the correction every command would appear to be older than the loss.
func TestRecovery_BusClockAhead_SparesLaterCommands(t *testing.T) {
	runStarted(t, func(f *fake) {
		f.recreate(time.Hour, event.StreamCommands)
		f.pass(time.Minute)
		f.want(t, loss{Noticed: 3500 * time.Millisecond, Before: every / 2})
	})
}

func TestRecovery_NoWorker_RetriesUntilTimeout(t *testing.T) {
	for _, starts := range []bool{true, false} {
		runStarted(t, func(f *fake) {
			f.unserved = 2
			f.recreate(0, event.StreamCommands)
			f.pass(settle + 2*every)
			tried := len(f.losses)
			if starts {
				f.unserved = 0
			}
			f.pass(time.Minute)
			want := tried + 1
			if !starts {
				want = int((workerTimeout-settle)/every) + 1
			}
			if tried < 2 || len(f.losses) != want {
				t.Errorf("worker starts: %t; %d checks before and %d in total, want %d", starts, tried, len(f.losses), want)
			}
		})
	}
}

func TestRecovery_OldStreams_SendNothing(t *testing.T) {
	runStarted(t, func(f *fake) {
		f.pass(time.Hour)
		f.want(t)
		if f.asked != 0 {
			t.Errorf("workers were asked %d times", f.asked)
		}
	})
}

func TestRecovery_SilentWorker_IsAwaitedThenSkipped(t *testing.T) {
	runStarted(t, func(f *fake) {
		f.taken.Silent = map[string]bool{"alpha": true}
		f.recreate(0, event.StreamCommands)
		f.pass(6 * time.Second)
		f.want(t)
		f.pass(time.Minute)
		f.want(t, loss{Noticed: 10500 * time.Millisecond, Held: []string{"op-1/4", "op-2/4"}})
	})
}

func TestRecovery_BusAway_Waits(t *testing.T) {
	runStarted(t, func(f *fake) {
		f.away = true
		f.pass(time.Minute)
		f.recreate(0, event.StreamCommands, event.StreamResults)
		f.away = false
		f.pass(time.Minute)
		if len(f.losses) != 1 {
			t.Errorf("losses %+v, want one", f.losses)
		}
	})
}

func TestRecovery_SendFails_IsRetried(t *testing.T) {
	runStarted(t, func(f *fake) {
		f.broken = true
		f.recreate(0, event.StreamCommands)
		f.pass(settle + 2*every)
		tried := len(f.losses)
		f.broken = false
		f.pass(time.Minute)
		if tried < 2 || len(f.losses) != tried+1 {
			t.Errorf("%d tries while it failed and %d in total, want one more after", tried, len(f.losses))
		}
	})
}
