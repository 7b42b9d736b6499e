package testkit

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kyma-project/keb/libs/internal/flock"
)

const (
	tempPrefix = "keb-test-postgres-"
	tempData   = "data"
	// A killed test binary leaves its folder. Creating and locking a folder takes less than this.
	staleAfter = 10 * time.Minute
)

// tempDir creates the folder for the server's data. It first removes the folders of killed test binaries in parent.
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
