package service

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLockDir_SecondProcess_Fails(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "data")
	release, err := LockDir(dir)
	require.NoError(t, err)
	_, err = LockDir(dir)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("in use by process %d: stop it", os.Getpid())) {
		t.Errorf("got %v, want an error that names this process", err)
	}
	release()
	release, err = LockDir(dir)
	require.NoError(t, err, "after release")
	release()
}

func TestLockDir_CannotCreateFolder_Fails(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	if _, err := LockDir(file); err == nil || !strings.HasPrefix(err.Error(), "data folder: ") {
		t.Errorf("got %v", err)
	}
}
