package testkit

import (
	"fmt"
	"testing"
	"time"
)

// fakeT is a test that must fail.
type fakeT struct {
	testing.TB
	fatal string
}

func (f *fakeT) Helper() {}

func (f *fakeT) Fatalf(format string, args ...any) {
	f.fatal = fmt.Sprintf(format, args...)
	panic(f)
}

func failing(run func(t testing.TB)) (fatal string) {
	f := &fakeT{}
	defer func() {
		if p := recover(); p != nil && p != any(f) {
			panic(p)
		}
		fatal = f.fatal
	}()
	run(f)
	return f.fatal
}

func TestEventually_Condition_Waits(t *testing.T) {
	t.Parallel()
	calls := 0
	Eventually(t, time.Minute, "the third call", func() bool { calls++; return calls == 3 })
	if calls != 3 {
		t.Errorf("called %d times, want 3", calls)
	}
}

func TestEventually_Timeout_FailsWithDescription(t *testing.T) {
	t.Parallel()
	got := failing(func(t testing.TB) {
		Eventually(t, time.Millisecond, "the impossible", func() bool { return false })
	})
	if got != "the impossible: did not happen within 1ms" {
		t.Errorf("got %q", got)
	}
}

func TestClock_Advance_MovesTime(t *testing.T) {
	t.Parallel()
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := NewClock(t0)
	if got := c.Now(); !got.Equal(t0) {
		t.Errorf("the clock shows %s", got)
	}
	c.Advance(time.Hour)
	if got := c.Now(); !got.Equal(t0.Add(time.Hour)) {
		t.Errorf("an hour later the clock shows %s", got)
	}
}

func TestLogger_AfterTest_DropsMessages(t *testing.T) {
	t.Parallel()
	var late interface{ Info(string, ...any) }
	t.Run("logs", func(t *testing.T) {
		l := Logger(t)
		l.Debug("in time")
		late = l
	})
	late.Info("late") // testing would panic
}
