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

func TestMemoryDir_EndOfTest_IsRemoved(t *testing.T) {
	t.Parallel()
	var dirs []string
	t.Run("test", func(t *testing.T) {
		dirs = []string{MemoryDir(t), MemoryDir(t)}
		require.NotEqual(t, dirs[0], dirs[1])
		for _, dir := range dirs {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
			// Another binary does not take it for the folder of a killed one.
			require.NoError(t, removeStale(filepath.Dir(filepath.Dir(dir)), time.Now().Add(-staleAfter)))
			require.FileExists(t, filepath.Join(dir, "file"))
		}
	})
	for _, dir := range dirs {
		require.NoDirExists(t, filepath.Dir(dir))
	}
}
