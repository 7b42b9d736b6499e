package recovery_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/liveness"
)

func (f *fake) wantRepublished(t *testing.T, want ...[2]time.Duration) {
	t.Helper()
	if diff := cmp.Diff(want, f.republished); diff != "" {
		t.Errorf("calls of AfterStart and their arguments (-want +got):\n%s", diff)
	}
}

func TestStart_RecentCommands_ArePublishedAgain(t *testing.T) {
	runStarting(t, func(f *fake) {
		f.recreate(-10*time.Second, event.StreamCommands)
		f.recreate(-5*time.Second, event.StreamResults)
		f.pass(time.Hour)
		f.wantRepublished(t, [2]time.Duration{0, -10 * time.Second})
	})
}

// A restarted bus has forgotten the ids of acknowledged commands, and still holds their results.
func TestStart_BusRestarted_WaitsForRedelivery(t *testing.T) {
	runStarting(t, func(f *fake) {
		f.recreate(-15*time.Second, memory)
		f.pass(time.Hour)
		f.wantRepublished(t, [2]time.Duration{5 * time.Second, -time.Hour})
	})
}

func TestStart_BusClockAhead_DoesNotWaitLonger(t *testing.T) {
	runStarting(t, func(f *fake) {
		f.recreate(time.Hour, memory)
		f.pass(time.Hour)
		f.wantRepublished(t, [2]time.Duration{redelivery, -time.Hour})
	})
}

func TestStart_PublishFails_IsRetriedForAWhile(t *testing.T) {
	for _, recovers := range []bool{true, false} {
		runStarting(t, func(f *fake) {
			f.away = true
			f.pass(3 * every)
			f.away, f.broken = false, true
			f.pass(3 * every)
			tried := len(f.republished)
			f.broken = !recovers
			f.pass(time.Hour)
			want := tried + 1
			if !recovers {
				// After the window a stream may accept duplicates.
				want = int((event.DuplicateWindow-f.republished[0][0])/every) + 1
			}
			if tried < 2 || len(f.republished) != want {
				t.Errorf("bus recovers: %t; %d tries before and %d in total, want %d", recovers, tried, len(f.republished), want)
			}
		})
	}
}

func TestStart_CommandHeldByWorker_IsSkipped(t *testing.T) {
	runStarting(t, func(f *fake) {
		f.taken = liveness.Taken{Silent: map[string]bool{"alpha": true}, Commands: map[string]bool{"op-3/4": true}}
		f.pass(time.Minute)
		if diff := cmp.Diff([]string{"op-1/4", "op-2/4", "op-3/4"}, f.skipped); diff != "" {
			t.Errorf("skipped commands (-want +got):\n%s", diff)
		}
	})
}
