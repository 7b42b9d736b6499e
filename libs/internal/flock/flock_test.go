package flock

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestALockIsHeldOnceAndFreedByRelease(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Acquire(path)
	require.NoError(t, err)
	_, err = Acquire(path)
	held, ok := errors.AsType[*HeldError](err)
	if !ok {
		t.Fatalf("second lock: got %v, want *HeldError", err)
	}
	if held.PID != os.Getpid() {
		t.Errorf("the holder is process %d, want %d", held.PID, os.Getpid())
	}
	for range 2 {
		if err := first.Release(); err != nil {
			t.Errorf("release: %v", err)
		}
	}
	second, err := Acquire(path)
	require.NoError(t, err, "lock after release")
	if err := second.Release(); err != nil {
		t.Error(err)
	}
}

func TestALockInAFolderThatIsMissingFails(t *testing.T) {
	t.Parallel()
	if _, err := Acquire(filepath.Join(t.TempDir(), "missing", "lock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want os.ErrNotExist", err)
	}
}
