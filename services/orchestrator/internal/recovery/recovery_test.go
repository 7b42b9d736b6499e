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

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/liveness"
	"github.com/kyma-project/keb/services/orchestrator/internal/recovery"
)

const (
	every    = time.Second
	settle   = 3 * time.Second
	patience = 10 * time.Second
	// redelivery is longer than anything that is waited for after a loss.
	redelivery = 20 * time.Second
	memory     = event.Stream("KV_" + event.StageBucket)
)

// fake is the bus, the workers and the dispatcher. It belongs to the test but while time passes.
type fake struct {
	mu     sync.Mutex
	start  time.Time
	made   map[event.Stream]time.Time
	away   bool
	broken bool
	taken  liveness.Taken
	asked  int
	losses []loss
	// republished is when commands were published once more, and since when the bus had kept what it was given.
	republished [][2]time.Duration
	// unserved is how many commands nobody serves.
	unserved int
}

type loss struct {
	Noticed, Before time.Duration
	ResultsOnly     bool
	Left            []string
}

func (f *fake) Created(_ context.Context, name event.Stream) (time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return time.Time{}, errors.New("no server")
	}
	return f.made[name], nil
}

func (f *fake) Taken(context.Context) (liveness.Taken, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return f.taken, nil
}

func (f *fake) AfterLoss(_ context.Context, before time.Time, resultsOnly bool, left func(worker, commandID string) bool) (int, int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := loss{Noticed: time.Since(f.start), Before: before.Sub(f.start), ResultsOnly: resultsOnly}
	for _, c := range [][2]string{{"alpha", "op-1/4"}, {"alpha", "op-2/4"}, {"beta", "op-3/4"}} {
		if left(c[0], c[1]) {
			l.Left = append(l.Left, c[1])
		}
	}
	f.losses = append(f.losses, l)
	if f.broken {
		return 0, 0, errors.New("the database is away")
	}
	return 3 - len(l.Left), f.unserved, nil
}

func (f *fake) AfterStart(_ context.Context, after time.Time) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.republished = append(f.republished, [2]time.Duration{time.Since(f.start), after.Sub(f.start)})
	if f.broken {
		return 0, errors.New("the bus takes nothing")
	}
	return 1, nil
}

// in runs a recovery in a bubble of fake time; the streams are an hour old, and it has looked at them.
func in(t *testing.T, test func(f *fake)) {
	t.Helper()
	starting(t, func(f *fake) {
		f.pass(2 * settle)
		if len(f.losses) != 1 || f.losses[0].Before != -time.Hour {
			t.Errorf("after the start: %+v, want one look for what is older than the streams", f.losses)
		}
		f.losses, f.asked, f.start = nil, 0, time.Now()
		test(f)
	})
}

// starting runs a recovery in a bubble of fake time; the streams are an hour old, and it has not looked at anything yet.
func starting(t *testing.T, test func(f *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{start: time.Now(), made: map[event.Stream]time.Time{}}
		f.makeAnew(-time.Hour, event.StreamCommands, event.StreamResults, memory)
		r := recovery.New(recovery.Config{
			Every: every, Timeout: every, Settle: settle, Patience: patience, Redelivery: redelivery,
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
	<-time.After(d + every/2) // of the bubble: no time passes
	synctest.Wait()
	f.mu.Lock()
}

func (f *fake) makeAnew(ago time.Duration, names ...event.Stream) {
	for _, name := range names {
		f.made[name] = time.Now().Add(ago)
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
		in(t, func(f *fake) {
			f.taken.Commands = map[string]bool{"op-2/4": true}
			f.makeAnew(0, name)
			f.pass(time.Minute)
			f.want(t, loss{Noticed: 3500 * time.Millisecond, ResultsOnly: name == event.StreamResults, Left: []string{"op-2/4"}})
		})
	}
}

func TestRecovery_StreamsRecreatedInTurn_AreOneLoss(t *testing.T) {
	in(t, func(f *fake) {
		f.makeAnew(-settle, event.StreamCommands)
		f.makeAnew(0, event.StreamResults)
		f.pass(time.Minute)
		f.want(t, loss{Noticed: 3500 * time.Millisecond})
	})
}

// Every command would seem to be older than the loss.
func TestRecovery_BusClockAhead_SparesLaterCommands(t *testing.T) {
	in(t, func(f *fake) {
		f.makeAnew(time.Hour, event.StreamCommands)
		f.pass(time.Minute)
		f.want(t, loss{Noticed: 3500 * time.Millisecond, Before: every / 2})
	})
}

func TestRecovery_NoWorker_RetriesUntilTimeout(t *testing.T) {
	for _, comes := range []bool{true, false} {
		in(t, func(f *fake) {
			f.unserved = 2
			f.makeAnew(0, event.StreamCommands)
			f.pass(settle + 2*every)
			tried := len(f.losses)
			if comes {
				f.unserved = 0
			}
			f.pass(time.Minute)
			want := tried + 1
			if !comes {
				want = int((patience-settle)/every) + 1
			}
			if tried < 2 || len(f.losses) != want {
				t.Errorf("a worker comes: %t; looked %d times before and %d times in all, want %d", comes, tried, len(f.losses), want)
			}
		})
	}
}

func TestRecovery_OldStreams_SendNothing(t *testing.T) {
	in(t, func(f *fake) {
		f.pass(time.Hour)
		f.want(t)
		if f.asked != 0 {
			t.Errorf("workers were asked %d times", f.asked)
		}
	})
}

func TestRecovery_SilentWorker_IsAwaitedThenSkipped(t *testing.T) {
	in(t, func(f *fake) {
		f.taken.Silent = map[string]bool{"alpha": true}
		f.makeAnew(0, event.StreamCommands)
		f.pass(6 * time.Second)
		f.want(t)
		f.pass(time.Minute)
		f.want(t, loss{Noticed: 10500 * time.Millisecond, Left: []string{"op-1/4", "op-2/4"}})
	})
}

func TestRecovery_BusAway_Waits(t *testing.T) {
	in(t, func(f *fake) {
		f.away = true
		f.pass(time.Minute)
		f.makeAnew(0, event.StreamCommands, event.StreamResults)
		f.away = false
		f.pass(time.Minute)
		if len(f.losses) != 1 {
			t.Errorf("losses %+v, want one", f.losses)
		}
	})
}

func TestRecovery_SendFails_IsRetried(t *testing.T) {
	in(t, func(f *fake) {
		f.broken = true
		f.makeAnew(0, event.StreamCommands)
		f.pass(settle + 2*every)
		tried := len(f.losses)
		f.broken = false
		f.pass(time.Minute)
		if tried < 2 || len(f.losses) != tried+1 {
			t.Errorf("tried %d times while it failed, %d in all", tried, len(f.losses))
		}
	})
}
