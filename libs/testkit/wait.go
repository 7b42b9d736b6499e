package testkit

import (
	"testing"
	"time"
)

// Looking soon at first and then ever more rarely learns of a quick change at once, and leaves the machine to what is waited for:
// a look may well be a request that costs several servers a millisecond of the CPU each.
const (
	firstPoll = 5 * time.Millisecond
	lastPoll  = 50 * time.Millisecond
)

// Eventually waits until ok answers true, and fails the test when it has not within the time. what completes the sentence
// "... did not happen". ok is called again and again, from the test's goroutine, with pauses of 5 to 50 ms.
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
			// The last look counts: on a busy machine the time may have gone into ok itself.
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
