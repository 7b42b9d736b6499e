package operatorapi

import (
	"strings"
	"testing"
)

func TestNotice_Unreadable_IsRejected(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		``: "read notice", `[]`: "read notice", `{"ids": [1]}`: "read notice",
		`{"ids": ["a"` + strings.Repeat(`, "a"`, maxNotice) + `]}`: "ids: got 1001, want at most 1000",
	} {
		if _, err := notice([]byte(data)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: error %v, want %q", data, err, want)
		}
	}
}

func FuzzNotice(f *testing.F) {
	f.Add([]byte(`{"ids":["019aa7a0-5e0a-7c1c-9d43-0c5f0a4d3b11"]}`))
	f.Add([]byte(`{"ids":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if ids, err := notice(data); err == nil && len(ids) > maxNotice {
			t.Errorf("%d ids were accepted", len(ids))
		}
	})
}
