package testkit

import (
	"testing"
	"time"
)

const pollEvery = 5 * time.Millisecond

// Eventually waits until ok answers true, and fails the test when it has not within the time. what completes the sentence
// "... did not happen". ok is called again and again, from the test's goroutine.
func Eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
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
		}
	}
}
