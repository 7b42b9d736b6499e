package pglocal

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// folderLock is held by the process that runs the server; the kernel frees it when that process dies. So a server in a
// folder that is not locked has lost its parent.
type folderLock struct{ file *os.File }

func lockFolder(dir string) (*folderLock, error) {
	// Beside the folder: it exists before the cluster and is not part of it.
	f, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start postgres: lock data folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer func() { _ = f.Close() }()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("start postgres: lock data folder: %w", err)
		}
		data, _ := os.ReadFile(f.Name()) // without the number the error says less, that is all
		pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
		return nil, &InUseError{DataDir: dir, PID: pid}
	}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(fmt.Errorf("start postgres: lock data folder: %w", err), f.Close())
	}
	if _, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return nil, errors.Join(fmt.Errorf("start postgres: lock data folder: %w", err), f.Close())
	}
	return &folderLock{file: f}, nil
}

// release may be called twice. The file stays: removing it would let two processes lock two files of one name.
func (l *folderLock) release() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}
