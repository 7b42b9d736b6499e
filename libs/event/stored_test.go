package event_test

import (
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/event"
)

// A test of the orchestrator's store compares StoredSize with the output of Postgres.
func TestStoredSize(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]int{
		`{}`:                     2,
		`{"a":1}`:                8,
		`{"a": [1,2, 3]}`:        16,
		`[1e3]`:                  6,
		`[1e308]`:                311,
		`[-1.5E+3]`:              7,
		`[1.25e1]`:               6,
		`[125e-2]`:               6,
		`[5e-7]`:                 11,
		`[0.10]`:                 6,
		`"a,b: 1e9 \" \\"`:       16,
		`[true,null]`:            12,
		`{"k":"1e308"}`:          14,
		"{\n\t\"a\" :\r\n 1 }\n": 8,
	} {
		if got := event.StoredSize([]byte(raw)); got != want {
			t.Errorf("size of %s is %d, want %d", raw, got, want)
		}
	}
}

func TestStoredSize_ManyLargeNumbers_CountsEveryDigit(t *testing.T) {
	t.Parallel()
	raw := `{"a":[` + strings.TrimSuffix(strings.Repeat("1e308,", 10_000), ",") + `]}`
	if got, least := event.StoredSize([]byte(raw)), 3_090_000; got < least {
		t.Errorf("size is %d, want at least %d", got, least)
	}
}
