package contract

import (
	"io"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMemory_Program_IsMeasured(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("sleep"); err != nil {
		t.Skip("there is no program sleep")
	}
	i, err := Command("sh", "-c", "sleep 60; true").Start(Environment{}, io.Discard)
	require.NoError(t, err)
	defer i.Kill()
	m, ok := i.(Measured)
	if !ok {
		t.Fatalf("%T cannot be measured", i)
	}
	if bytes, err := m.Memory(); err == nil && bytes < 100<<10 {
		t.Errorf("a shell and what it has started use %d bytes", bytes)
	}
}

func TestGroupMemory_StatLine_IsRead(t *testing.T) {
	t.Parallel()
	rest := " S 1 4711 4711 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 100 1000000 42 18446744073709551615"
	for line, want := range map[string]struct {
		group int
		pages int64
		ok    bool
	}{
		"4712 (worker)" + rest:              {4711, 42, true},
		"4712 (a (worker) in S 1 7)" + rest: {4711, 42, true},
		"4712 (worker) S 1":                 {0, 0, false},
		"":                                  {0, 0, false},
	} {
		group, pages, err := groupMemory(line)
		if group != want.group || pages != want.pages || (err == nil) != want.ok {
			t.Errorf("%q: group %d, %d pages, %v: want %+v", line, group, pages, err, want)
		}
	}
}
