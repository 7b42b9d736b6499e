package service

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kyma-project/keb/libs/internal/flock"
)

// LockDir locks a data folder for this process until release is called or the process ends. It creates the folder
// if it is missing. Other users may enter the folder but not list it. If another process
// holds the lock, the error is one line with the name of that process.
func LockDir(dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	l, err := flock.Acquire(filepath.Join(dir, "lock"))
	if held, ok := errors.AsType[*flock.HeldError](err); ok {
		who := "another process"
		if held.PID != 0 {
			who = fmt.Sprintf("process %d", held.PID)
		}
		return nil, fmt.Errorf("data folder %s is in use by %s: stop it, or choose another folder", dir, who)
	}
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	return func() { _ = l.Release() }, nil // closing an unchanged file
}
