package testkit

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/internal/flock"
)

func TestFoldersOfKilledRunsAreRemovedAndNoOthers(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	old := time.Now().Add(-time.Hour)
	folder := func(name string, made time.Time) string {
		dir := filepath.Join(parent, name)
		if err := os.MkdirAll(filepath.Join(dir, tempData), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, made, made); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	stale := folder(tempPrefix+"1", old)
	running := folder(tempPrefix+"2", old)
	lock, err := flock.Acquire(filepath.Join(running, tempData+".lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Release() }()
	if err := os.Chtimes(running, old, old); err != nil {
		t.Fatal(err)
	}
	starting := folder(tempPrefix+"3", time.Now())
	other := folder("somebody-else", old)

	made, err := tempDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the killed run is still there: %v", err)
	}
	for _, dir := range []string{running, starting, other, made} {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}
}
