package testkit

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/internal/flock"
)

func TestTempDir_LeftoverFolders_AreRemoved(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	old := time.Now().Add(-time.Hour)
	folder := func(name string, made time.Time) string {
		dir := filepath.Join(parent, name)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, tempData), 0o700))
		require.NoError(t, os.Chtimes(dir, made, made))
		return dir
	}
	stale := folder(tempPrefix+"1", old)
	running := folder(tempPrefix+"2", old)
	lock, err := flock.Acquire(filepath.Join(running, tempData+".lock"))
	require.NoError(t, err)
	defer func() { _ = lock.Release() }()
	require.NoError(t, os.Chtimes(running, old, old))
	starting := folder(tempPrefix+"3", time.Now())
	other := folder("somebody-else", old)

	made, err := tempDir(parent)
	require.NoError(t, err)
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the killed run is still there: %v", err)
	}
	for _, dir := range []string{running, starting, other, made} {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}
}
