package view_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
)

// clock advances by a second with each call.
func clock() func() time.Time {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	return func() time.Time {
		at = at.Add(time.Second)
		return at
	}
}

func TestBar_Terminal_IsRewrittenAndFits(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	columns := 60
	b := view.NewBar(&out, func() (int, bool) { return columns, true }, clock())
	for _, err := range []error{b.Set(0, 4, "runtimes"), b.Set(2, 4, "runtimes"), b.Set(4, 4, strings.Repeat("long ", 20)), b.Done(), b.Clear()} {
		require.NoError(t, err)
	}
	want := "\r[>                       ] 0/4 runtimes  1s\x1b[K" +
		"\r[============>           ] 2/4 runtimes  2s\x1b[K" +
		"\r[========================] 4/4 long long long long long lon\x1b[K\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBar_NoTerminal_PrintsLinePerChange(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	b := view.NewBar(&out, func() (int, bool) { return 0, false }, clock())
	for _, err := range []error{b.Set(0, 0, "waiting"), b.Set(1, 4, "failed 0"), b.Set(1, 4, "failed 0"), b.Set(2, 4, "failed 1"), b.Done()} {
		require.NoError(t, err)
	}
	want := "2026-11-21T12:00:02Z waiting\n2026-11-21T12:00:03Z 1/4 failed 0\n2026-11-21T12:00:04Z 2/4 failed 1\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBar_Clear_RemovesLine(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	b := view.NewBar(&out, func() (int, bool) { return 80, true }, clock())
	require.NoError(t, b.Set(1, 0, "pages"))
	require.NoError(t, b.Clear())
	if !strings.HasSuffix(out.String(), "1 pages  1s\x1b[K\r\x1b[K") {
		t.Errorf("got %q", out.String())
	}
}
