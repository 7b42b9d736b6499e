// Package flock locks files between processes. The kernel frees a lock when its process dies, however it dies.
package flock

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// HeldError means that another process holds the lock.
type HeldError struct {
	Path string
	// PID is the holder's process id, zero when unknown.
	PID int
}

// Error names the holder.
func (e *HeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("lock %s: held by another process", e.Path)
	}
	return fmt.Sprintf("lock %s: held by process %d", e.Path, e.PID)
}

// Lock is a lock that is held.
type Lock struct {
	mu   sync.Mutex
	file *os.File
}

// Acquire locks the file at path, which it creates if it is missing. If the lock is held, it returns *HeldError immediately.
func Acquire(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer func() { _ = f.Close() }()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		data, _ := os.ReadFile(path) // without the process id the error is still useful
		pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
		return nil, &HeldError{Path: path, PID: pid}
	}
	if err := errors.Join(f.Truncate(0), writePID(f)); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return &Lock{file: f}, nil
}

func writePID(f *os.File) error {
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// Release frees the lock; doing it twice is harmless. The file stays: with it removed, two processes could lock two files of
// the same name.
func (l *Lock) Release() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}
