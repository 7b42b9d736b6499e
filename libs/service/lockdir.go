package service

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kyma-project/keb/libs/internal/flock"
)

// LockDir makes a data folder this process's own until release is called or the process ends. The folder is created
// when missing; other users may pass through it to what they own below, and see nothing. When another process
// has it, the error is one line and names that process.
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
	return func() { _ = l.Release() }, nil // closing a file that nothing was written to since
}
