package pglocal

import (
	"errors"
	"fmt"

	"github.com/kyma-project/keb/libs/internal/flock"
)

// lockFolder takes the lock that the server's parent holds. The kernel releases it when that process ends, so the parent of a server in
// an unlocked folder has ended. The lock file is beside the folder, because it must exist before the cluster.
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
