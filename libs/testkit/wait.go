package testkit

import (
	"testing"
	"time"
)

// Short pauses at first detect quick changes immediately; longer ones later save CPU time for the awaited work. A check may be a request
// that takes several servers a millisecond each.
const (
	firstPoll = 5 * time.Millisecond
	lastPoll  = 50 * time.Millisecond
)

// Eventually waits until ok returns true, and fails the test after the time within. what completes the sentence "... did not happen". ok
// is called in the test's goroutine, with pauses of 5 to 50 ms.
func Eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	pause := firstPoll
	tick := time.NewTimer(pause)
	defer tick.Stop()
	for {
		if ok() {
			return
		}
		select {
		case <-deadline.C:
			// Check once more: on a busy machine ok itself may have used up the time.
			if !ok() {
				t.Fatalf("%s: did not happen within %s", what, within)
			}
			return
		case <-tick.C:
			pause = min(pause*3/2, lastPoll)
			tick.Reset(pause)
		}
	}
}
