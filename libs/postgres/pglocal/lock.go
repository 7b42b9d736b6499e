package pglocal

import (
	"errors"
	"fmt"

	"github.com/kyma-project/keb/libs/internal/flock"
)

// lockFolder takes the lock that the process holds which runs the server. The kernel frees it when that process dies, so a
// server in a folder that is not locked has lost its parent. The file is beside the folder: it exists before the cluster.
func lockFolder(dir string) (*flock.Lock, error) {
	l, err := flock.Acquire(dir + ".lock")
	if held, ok := errors.AsType[*flock.HeldError](err); ok {
		return nil, &InUseError{DataDir: dir, PID: held.PID}
	}
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	return l, nil
}
