package up

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"sync"
)

const (
	// maxLog is the size in bytes at which the log is put aside.
	maxLog = 64 << 20
	// oldLogs is how many logs that were put aside are kept: keb.log.1 is the newest.
	oldLogs = 3
)

// rotatingLog is a file that is put aside when it has reached a size. It is safe for concurrent use.
type rotatingLog struct {
	path  string
	limit int64

	mu   sync.Mutex
	file *os.File
	size int64
}

// open opens the file; the caller holds the lock, or is the only user of the log.
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

// Write appends to the log, which it puts aside first if it would become too large. A log that cannot be put aside goes on growing.
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
			l.size = 0 // try again when as much has been written once more
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
