package testkit

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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

func TestPostgres_NoSource_NamesAlternatives(t *testing.T) {
	t.Parallel()
	broken := func(name string) source {
		return source{name, func(context.Context) (*pgServer, error) { return nil, fmt.Errorf("no %s", name) }}
	}
	_, err := firstOf(t.Context(), broken("binaries"), broken("engine"))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"apt-get install postgresql", DatabaseURLEnv, "Docker", "no binaries", "no engine"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
}

func TestPostgres_AddressVariable_IsUsed(t *testing.T) {
	address := Postgres(t, nil)
	t.Setenv(DatabaseURLEnv, address)
	s, err := startServer(t.Context())
	require.NoError(t, err)
	name, err := s.database(t.Context(), tableWith(3))
	require.NoError(t, err)
	db := openDB(t, withDatabase(address, name))
	var n int
	if err := db.GetContext(t.Context(), &n, `SELECT n FROM numbers`); err != nil || n != 3 {
		t.Errorf("got %d, %v", n, err)
	}
	s.made = append(s.made, name)
	if err := s.close(t.Context()); err != nil {
		t.Error(err)
	}

	t.Setenv(DatabaseURLEnv, "postgres://nobody_we_know:canary@"+strings.SplitN(strings.SplitN(address, "@", 2)[1], "?", 2)[0])
	_, err = startServer(t.Context())
	if err == nil || !strings.Contains(err.Error(), DatabaseURLEnv) || strings.Contains(err.Error(), "canary") {
		t.Errorf("got %v, want an error that names the variable", err)
	}
}
