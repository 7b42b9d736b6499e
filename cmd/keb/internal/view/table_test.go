package view_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
)

func TestTable_LongText_KeepsItsEnd(t *testing.T) {
	t.Parallel()
	head := []string{"ID", "STATE", "WHERE"}
	long := "create/Check: err_x: " + strings.Repeat("very ", 100) + "long: the cause"
	rows := [][]string{{"op-1", "failed", long}, {"operation-2", "pending", ""}, {"op-3", "failed\x1b[31m", "two\nlines"}}
	for name, c := range map[string]struct {
		width int
		want  string
	}{
		"without a terminal": {0, "ID           STATE       WHERE\nop-1         failed      " + view.Middle(long, 300) + "\noperation-2  pending\nop-3         failed[31m  two lines\n"},
		"in a wide terminal": {80, "ID           STATE       WHERE\nop-1         failed      " + view.Middle(long, 55) + "\noperation-2  pending\nop-3         failed[31m  two lines\n"},
		"in a narrow terminal": {
			60,
			"ID           STATE\n    WHERE\nop-1         failed\n    " + view.Middle(long, 56) + "\noperation-2  pending\nop-3         failed[31m\n    two lines\n",
		},
	} {
		got := view.Table(head, rows, c.width)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if !strings.Contains(got, "long: the cause\n") {
			t.Errorf("%s: the cause is missing", name)
		}
		for line := range strings.Lines(got) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); c.width > 0 && n > c.width {
				t.Errorf("%s: a line has %d characters", name, n)
			}
		}
	}
}

func TestMiddle_ShortensToWidth(t *testing.T) {
	t.Parallel()
	for width, want := range map[int]string{10: "äbcdefghij", 9: "äb…efghij", 4: "ä…ij", 1: "ä", 0: ""} {
		if got := view.Middle("äbcdefghij", width); got != want {
			t.Errorf("width %d: %q, want %q", width, got, want)
		}
	}
}

func TestTime_IsInUTC(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 23, 0, 0, 5, time.FixedZone("CET", 3600))
	if got := view.Time(at); got != "2026-11-21T22:00:00Z" {
		t.Errorf("time is %s", got)
	}
}
