package timer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
	"github.com/kyma-project/keb/services/orchestrator/internal/timer"
)

const every = time.Second

// fakeStore holds the times of operations. It implements Store and Dispatcher.
type fakeStore struct {
	mu         sync.Mutex
	start      time.Time
	due        []time.Time
	unanswered []time.Time
	pending    bool
	held       bool
	signalled  bool
	limited    bool
	failing    map[string]bool
	away       bool // whether drain fails because the bus is unavailable
	calls      []string
	woken      []time.Duration // the times at which due operations were woken, since the start
	reads      int             // of the status
	wholes     int             // of the whole status
	grants     int             // rounds of grants
	looks      int             // for unanswered commands
	locked     int             // the number of operations that another orchestrator has locked
}

func (f *fakeStore) call(name string) error {
	f.calls = append(f.calls, fmt.Sprint(name, " at ", time.Since(f.start)))
	if f.failing[name] {
		return errors.New(name + " is broken")
	}
	return nil
}

func first(times []time.Time) time.Time {
	if len(times) == 0 {
		return time.Time{}
	}
	return slices.MinFunc(times, time.Time.Compare)
}

func (f *fakeStore) SweepStatus(_ context.Context, _ time.Time, whole bool) (store.SweepStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if f.failing["status"] {
		return store.SweepStatus{}, errors.New("status is broken")
	}
	status := store.SweepStatus{NextDue: first(f.due), Held: f.held, Signalled: f.signalled}
	if whole {
		f.wholes++
		status.NextUnanswered, status.Pending, status.Limited = first(f.unanswered), f.pending, f.limited
	}
	return status, nil
}

func (f *fakeStore) Drain(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failing["drain"] {
		cause := errors.New("refused")
		if f.away {
			cause = nats.ErrDisconnected
		}
		return fmt.Errorf("publish: %w", &bus.PublishError{Total: 1, Failures: []bus.Failure{{Err: cause}}})
	}
	return nil
}

func (f *fakeStore) ReleaseHeld(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = false
	return f.call("release")
}

func (f *fakeStore) DeliverSignals(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.signalled = false
	return f.call("signals")
}

func (f *fakeStore) WakeGrants() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.grants++
}

func (f *fakeStore) Due(_ context.Context, unanswered bool) (n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.call("due"); err != nil {
		return 0, err
	}
	f.due = slices.DeleteFunc(f.due, func(at time.Time) bool {
		if at.After(time.Now()) || len(f.due)-n <= f.locked {
			return false
		}
		f.woken = append(f.woken, time.Since(f.start))
		n++
		return true
	})
	if !unanswered {
		return n, nil
	}
	f.looks++
	n += len(f.unanswered)
	f.unanswered = slices.DeleteFunc(f.unanswered, func(at time.Time) bool { return !at.After(time.Now()) })
	return n - len(f.unanswered), nil
}

func (f *fakeStore) Admit(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pending = false
	return f.call("admit")
}

func (f *fakeStore) RecordFacts(context.Context) {}

// runTimer runs a timer with fake time during the test.
func runTimer(t *testing.T, test func(f *fakeStore, tm *timer.Timer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{start: time.Now(), failing: map[string]bool{}}
		tm := timer.New(timer.Config{Every: every}, f, time.Now, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- tm.Run(ctx, f) }()
		synctest.Wait() // the first sweep
		test(f, tm)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
}

func pass(d time.Duration) {
	<-time.After(d) // fake time
	synctest.Wait()
}

// change changes the fake store.
func (f *fakeStore) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *fakeStore) wait(tm *timer.Timer, after time.Duration) {
	at := time.Now().Add(after)
	f.change(func() { f.due = append(f.due, at) })
	tm.Wake(at)
}

func TestTimer_DueOperation_IsHandled(t *testing.T) {
	runTimer(t, func(f *fakeStore, tm *timer.Timer) {
		pass(300 * time.Millisecond)
		f.wait(tm, 50*time.Millisecond)
		pass(10 * time.Second)
		if diff := cmp.Diff([]time.Duration{350 * time.Millisecond}, f.woken); diff != "" {
			t.Errorf("woken (-want +got):\n%s", diff)
		}
	})
}

func TestTimer_ManyTimes_NoOperationIsLate(t *testing.T) {
	runTimer(t, func(f *fakeStore, tm *timer.Timer) {
		for _, ms := range []time.Duration{300, 100, 700, 200, 1500, 2700} {
			f.wait(tm, ms*time.Millisecond)
		}
		pass(10 * time.Second)
		var want []time.Duration
		for _, ms := range []time.Duration{100, 200, 300, 700, 1500, 2700} {
			want = append(want, ms*time.Millisecond)
		}
		if diff := cmp.Diff(want, f.woken); diff != "" {
			t.Errorf("woken (-want +got):\n%s", diff)
		}
	})
}

func TestTimer_NoWake_FoundByRegularSweep(t *testing.T) {
	runTimer(t, func(f *fakeStore, _ *timer.Timer) {
		f.change(func() { f.due = append(f.due, f.start.Add(2500*time.Millisecond)) }) // by another orchestrator
		pass(10 * time.Second)
		if diff := cmp.Diff([]time.Duration{2500 * time.Millisecond}, f.woken); diff != "" {
			t.Errorf("woken (-want +got):\n%s", diff)
		}
	})
}

func TestTimer_UnansweredCommand_IsFoundAtItsLimit(t *testing.T) {
	runTimer(t, func(f *fakeStore, _ *timer.Timer) {
		f.change(func() { f.unanswered = []time.Time{f.start.Add(2300 * time.Millisecond)} })
		pass(10 * time.Second)
		if diff := cmp.Diff([]string{"due at 2.3s"}, f.calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}

func TestTimer_FarWake_KeepsTheInterval(t *testing.T) {
	runTimer(t, func(f *fakeStore, tm *timer.Timer) {
		pass(500 * time.Millisecond)
		f.change(func() { f.unanswered, f.pending = []time.Time{time.Now()}, true })
		tm.Wake(time.Now().Add(time.Hour)) // must not delay the sweep
		pass(600 * time.Millisecond)
		if diff := cmp.Diff([]string{"due at 1s", "admit at 1s"}, f.calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}

func TestTimer_Idle_SweepsOncePerInterval(t *testing.T) {
	runTimer(t, func(f *fakeStore, _ *timer.Timer) {
		f.change(func() { f.reads = 0 })
		pass(100 * every)
		if f.reads != 100 || len(f.calls) != 0 {
			t.Errorf("%d reads of the status in 100 s and calls %v, want 100 reads and no calls", f.reads, f.calls)
		}
	})
}

func TestTimer_ManyDue_RestIsDoneOncePerInterval(t *testing.T) {
	runTimer(t, func(f *fakeStore, tm *timer.Timer) {
		f.change(func() {
			f.reads, f.wholes, f.limited, f.unanswered = 0, 0, true, []time.Time{f.start.Add(4500 * time.Millisecond)}
		})
		for n := range 100 {
			f.wait(tm, time.Duration(n)*100*time.Millisecond)
		}
		pass(10*every + every/2)
		if len(f.woken) != 100 || f.reads < 100 || f.wholes > 11 {
			t.Errorf("%d operations woken with %d reads of the status, %d of them whole, in 10 s", len(f.woken), f.reads, f.wholes)
		}
		if f.grants < 10 || f.grants > 11 || f.looks != 1 {
			t.Errorf("%d rounds of grants and %d looks for unanswered commands in 10 s, want one each second, and one", f.grants, f.looks)
		}
	})
}

func TestTimer_ManyDueTogether_AreOneSweep(t *testing.T) {
	runTimer(t, func(f *fakeStore, tm *timer.Timer) {
		f.change(func() { f.reads = 0 })
		for range 1000 {
			f.wait(tm, 0)
		}
		pass(100 * time.Millisecond)
		if len(f.woken) != 1000 || f.reads > 4 {
			t.Errorf("%d operations woken with %d reads of the status", len(f.woken), f.reads)
		}
	})
}

func TestTimer_SweepFails_NextOneIsPaced(t *testing.T) {
	for _, broken := range []string{"status", "drain", "due", "admit"} {
		t.Run(broken, func(t *testing.T) {
			runTimer(t, func(f *fakeStore, tm *timer.Timer) {
				f.change(func() {
					f.failing[broken], f.reads = true, 0
					f.unanswered, f.pending = []time.Time{time.Now()}, true
				})
				f.wait(tm, 0)
				pass(5 * every)
				if f.reads < 5 || f.reads > 15 {
					t.Errorf("%d reads of the status in 5 s", f.reads)
				}
				f.change(func() { delete(f.failing, broken) })
				pass(2 * every)
				if len(f.woken) != 1 {
					t.Errorf("woken at %v, want once", f.woken)
				}
			})
		})
	}
}

// An operation that another orchestrator has locked is due, but cannot be woken.
func TestTimer_LockedOperation_IsNotPolled(t *testing.T) {
	runTimer(t, func(f *fakeStore, tm *timer.Timer) {
		f.change(func() { f.locked, f.reads = 1, 0 })
		f.wait(tm, 0)
		f.wait(tm, 0)
		pass(10 * every)
		if len(f.woken) != 1 || f.reads > 15 {
			t.Errorf("%d operations woken with %d reads of the status in 10 s", len(f.woken), f.reads)
		}
	})
}

// A publication that fails must not block other operations.
func TestSweep_PartFails_TheRestIsDone(t *testing.T) {
	for _, broken := range []string{"drain", "due"} {
		t.Run(broken, func(t *testing.T) {
			runTimer(t, func(f *fakeStore, _ *timer.Timer) {
				f.change(func() {
					f.failing[broken] = true
					f.due, f.unanswered, f.pending = []time.Time{time.Now()}, []time.Time{time.Now()}, true
				})
				pass(every)
				want := []string{"due", "admit"}
				var got []string
				for _, call := range f.calls[:min(len(f.calls), len(want))] {
					got = append(got, strings.Fields(call)[0])
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// The status is read again after due operations were woken, without the pending ones.
func TestSweep_DueAndPendingOperations_AreBothTakenUp(t *testing.T) {
	runTimer(t, func(f *fakeStore, _ *timer.Timer) {
		f.change(func() { f.due, f.pending = []time.Time{time.Now()}, true })
		pass(every)
		if want := []string{"due at 1s", "admit at 1s"}; !slices.Equal(f.calls, want) {
			t.Errorf("calls %v, want %v", f.calls, want)
		}
	})
}

func TestSweep_BusIsAway_NothingIsTakenUp(t *testing.T) {
	runTimer(t, func(f *fakeStore, tm *timer.Timer) {
		f.change(func() {
			f.failing["drain"], f.away, f.pending = true, true, true
		})
		f.wait(tm, 0)
		pass(3 * every)
		if len(f.calls) > 0 {
			t.Errorf("calls %v, want none while the bus is unavailable", f.calls)
		}
	})
}

// An event that has come goes to its operation before the next try, which would then run without it.
func TestSweep_EventsAndReleases_PrecedeDueOperations(t *testing.T) {
	for first, pending := range map[string]func(*fakeStore){
		"signals": func(f *fakeStore) { f.signalled = true },
		"release": func(f *fakeStore) { f.held = true },
	} {
		runTimer(t, func(f *fakeStore, tm *timer.Timer) {
			pass(300 * time.Millisecond)
			f.change(func() { pending(f); f.due = []time.Time{time.Now()} })
			tm.Wake(time.Now())
			pass(10 * time.Millisecond)
			if want := []string{first + " at 302ms", "due at 302ms"}; !slices.Equal(f.calls, want) {
				t.Errorf("calls %v, want %v", f.calls, want)
			}
		})
	}
}
