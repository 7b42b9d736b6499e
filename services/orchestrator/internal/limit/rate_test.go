package limit

import (
	"testing"
	"time"
)

var epoch = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// begin returns when n commands begin that all wait, if an orchestrator looks at each step.
func begin(r Rate, n int, step time.Duration) []time.Time {
	var times []time.Time
	var next time.Time
	for now := epoch; len(times) < n; now = now.Add(step) {
		for len(times) < n && !r.Ready(next).After(now) {
			next = r.Taken(next, now)
			times = append(times, now)
		}
	}
	return times
}

func TestRate_AnyPeriod_HasAtMostTheCommands(t *testing.T) {
	t.Parallel()
	for _, r := range []Rate{{1, time.Second}, {5, time.Second}, {300, time.Minute}, {7, time.Minute}, {100, time.Second}, {10_000, time.Second}} {
		for _, step := range []time.Duration{time.Millisecond, 7 * time.Millisecond, 130 * time.Millisecond} {
			times := begin(r, 3*r.Commands, step)
			for i := range times {
				if j := i + r.Commands; j < len(times) && times[j].Sub(times[i]) < r.Per {
					t.Errorf("%s, looked at each %s: %d commands begin within %s", r, step, r.Commands+1, times[j].Sub(times[i]))
					break
				}
			}
			took := times[len(times)-1].Sub(epoch)
			if ideal := 3 * r.Per; step <= 7*time.Millisecond && took > ideal+ideal/8 {
				t.Errorf("%s, looked at each %s: %d commands take %s, want about %s", r, step, len(times), took, ideal)
			}
		}
	}
}

func TestRate_Raised_AppliesAtOnce(t *testing.T) {
	t.Parallel()
	slow, fast := Rate{1, time.Minute}, Rate{100, time.Second}
	next := slow.Bounded(slow.Taken(time.Time{}, epoch), epoch)
	if at := slow.Ready(next); !at.Equal(epoch.Add(time.Minute)) {
		t.Errorf("the next command begins at %s, want in a minute", at)
	}
	next = fast.Bounded(next, epoch)
	if at := fast.Ready(next); at.After(epoch.Add(20 * time.Millisecond)) {
		t.Errorf("with the new rate the next command begins at %s, want at once", at)
	}
	if now := epoch.Add(20 * time.Millisecond); fast.Ready(fast.Bounded(next, now)).After(now) {
		t.Error("with the new rate the next command does not begin")
	}
}
