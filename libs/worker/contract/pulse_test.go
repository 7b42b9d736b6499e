package contract

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestThePulseStandsStillWhileTheProcessDoes(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := &pulse{last: start}
	at := start
	for range 100 {
		at = at.Add(beat)
		p.take(at)
	}
	if got := p.take(at); got != 100*beat {
		t.Errorf("after %s it shows %s", 100*beat, got)
	}
	at = at.Add(time.Hour) // nothing ran
	if got := p.take(at); got > 105*beat {
		t.Errorf("an hour in which nothing ran counts as %s", got-100*beat)
	}
}

func TestWaitingByThePulseTakesAsLongAsTheProcessRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPulse()
		defer p.close()
		never := make(chan struct{})
		begin := time.Now()
		if p.wait(t.Context(), time.Minute, never) {
			t.Error("what never happens is said to have happened")
		}
		if took := time.Since(begin); took < time.Minute || took > time.Minute+4*beat {
			t.Errorf("a minute takes %s", took)
		}
		done := make(chan struct{})
		close(done)
		if !p.wait(t.Context(), 0, done) {
			t.Error("what has happened is not seen when the time is over")
		}
	})
}
