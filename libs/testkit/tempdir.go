package testkit

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/internal/flock"
)

const (
	tempPrefix = "keb-test-"
	tempData   = "data"
	// A killed test binary leaves its folder. Creating and locking a folder takes less than this.
	staleAfter = 10 * time.Minute
	// spareMemory is the free memory in bytes with which data is kept in memory: four test binaries at a time take a quarter of it.
	spareMemory = 8 << 30
)

// dataParent returns the parent of folders with the data of servers. Creating their files on a disk takes a third of the CPU time of many
// tests, so the parent is in memory if the machine has enough of it.
var dataParent = sync.OnceValue(func() string {
	if dir := memoryDir(spareMemory); dir != "" {
		return dir
	}
	return os.TempDir()
})

// MemoryDir is like t.TempDir, for the data of a server. The folder is in memory if the machine has enough of it.
func MemoryDir(t testing.TB) string {
	t.Helper()
	dir, err := tempDir(dataParent())
	if err != nil {
		t.Fatalf("make a folder: %v", err)
	}
	lock, err := flock.Acquire(filepath.Join(dir, tempData+".lock"))
	if err != nil {
		t.Fatalf("make a folder: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(os.RemoveAll(dir), lock.Release()); err != nil {
			t.Errorf("remove the folder of the test: %v", err)
		}
	})
	data := filepath.Join(dir, tempData)
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatalf("make a folder: %v", err)
	}
	return data
}

// DataDir is like MemoryDir, for a server that several tests share. The server locks the folder with a file next to it whose name ends in
// .lock; its owner removes the parent.
func DataDir() (string, error) {
	dir, err := tempDir(dataParent())
	return filepath.Join(dir, tempData), err
}

// tempDir creates a folder for the data of a server. It first removes the folders of killed test binaries in parent.
func tempDir(parent string) (string, error) {
	if err := removeStale(parent, time.Now().Add(-staleAfter)); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(parent, tempPrefix)
	if err != nil {
		return "", err
	}
	// The server may run as another user.
	if err := os.Chmod(dir, 0o711); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

func removeStale(parent string, madeBefore time.Time) error {
	dirs, err := filepath.Glob(filepath.Join(parent, tempPrefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || info.ModTime().After(madeBefore) {
			continue
		}
		// The lock of a folder is free if its process has ended; that of another user cannot be opened.
		lock, err := flock.Acquire(filepath.Join(dir, tempData+".lock"))
		if err != nil {
			continue
		}
		err = os.RemoveAll(dir)
		if err := errors.Join(err, lock.Release()); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}
