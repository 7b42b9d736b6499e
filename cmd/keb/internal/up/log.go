package up

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"sync"
)

const (
	// maxLog is the size in bytes at which the log is rotated.
	maxLog = 64 << 20
	// oldLogs is the number of rotated logs that are kept; keb.log.1 is the newest.
	oldLogs = 3
)

// rotatingLog is a file that is rotated at a maximum size. It is safe for concurrent use.
type rotatingLog struct {
	path  string
	limit int64

	mu   sync.Mutex
	file *os.File
	size int64
}

// open opens the file. The caller holds the lock or is the only user of the log.
func (l *rotatingLog) open() error {
	file, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	l.file, l.size = file, info.Size()
	return nil
}

// Write appends to the log and rotates it first if it would become too large. If the rotation fails, the log keeps growing.
func (l *rotatingLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > 0 && l.size+int64(len(line)) > l.limit {
		l.putAside()
	}
	n, err := l.file.Write(line)
	l.size += int64(n)
	return n, err
}

func (l *rotatingLog) putAside() {
	for i := oldLogs; i > 0; i-- {
		from := l.path
		if i > 1 {
			from += "." + strconv.Itoa(i-1)
		}
		if err := os.Rename(from, l.path+"."+strconv.Itoa(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.size = 0 // retry after another maxLog bytes
			return
		}
	}
	old := l.file
	if err := l.open(); err != nil {
		l.size = 0
		return
	}
	_ = old.Close() // everything has been written
}

// Close closes the file.
func (l *rotatingLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}
