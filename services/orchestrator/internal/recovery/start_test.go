package recovery_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
)

func (f *fake) wantRepublished(t *testing.T, want ...[2]time.Duration) {
	t.Helper()
	if diff := cmp.Diff(want, f.republished); diff != "" {
		t.Errorf("published once more, since when the bus is up (-want +got):\n%s", diff)
	}
}

func TestStart_RecentCommands_ArePublishedAgain(t *testing.T) {
	starting(t, func(f *fake) {
		f.makeAnew(-10*time.Second, event.StreamCommands)
		f.makeAnew(-5*time.Second, event.StreamResults)
		f.pass(time.Hour)
		f.wantRepublished(t, [2]time.Duration{0, -10 * time.Second})
	})
}

// It has forgotten the ids of what was answered, and carries the answers still.
func TestStart_BusRestarted_WaitsForRedelivery(t *testing.T) {
	starting(t, func(f *fake) {
		f.makeAnew(-15*time.Second, memory)
		f.pass(time.Hour)
		f.wantRepublished(t, [2]time.Duration{5 * time.Second, -time.Hour})
	})
}

func TestStart_BusClockAhead_DoesNotWaitLonger(t *testing.T) {
	starting(t, func(f *fake) {
		f.makeAnew(time.Hour, memory)
		f.pass(time.Hour)
		f.wantRepublished(t, [2]time.Duration{redelivery, -time.Hour})
	})
}

func TestStart_PublishFails_IsRetriedForAWhile(t *testing.T) {
	for _, comes := range []bool{true, false} {
		starting(t, func(f *fake) {
			f.away = true
			f.pass(3 * every)
			f.away, f.broken = false, true
			f.pass(3 * every)
			tried := len(f.republished)
			f.broken = !comes
			f.pass(time.Hour)
			want := tried + 1
			if !comes {
				// Beyond it a stream could take what it has had already.
				want = int((event.DuplicateWindow-f.republished[0][0])/every) + 1
			}
			if tried < 2 || len(f.republished) != want {
				t.Errorf("the bus takes it in the end: %t; tried %d times before and %d times in all, want %d", comes, tried, len(f.republished), want)
			}
		})
	}
}
