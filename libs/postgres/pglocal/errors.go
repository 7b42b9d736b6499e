package pglocal

import (
	"errors"
	"fmt"
)

// ErrNoBinaries is returned if no PostgreSQL server binaries are found. Its text describes the alternatives.
var ErrNoBinaries = errors.New("no PostgreSQL server binaries found: " +
	"install them (Debian and Ubuntu: apt-get install postgresql), " +
	"or name their folder in KEB_POSTGRES_BIN, " +
	"or give the address of a running server instead, or allow them to be downloaded")

// ErrPortInUse is wrapped by the error for a port on which another program listens.
var ErrPortInUse = errors.New("port is in use")

// InUseError means that a running process uses the data folder.
type InUseError struct {
	DataDir string
	// PID is the owner's process id; zero when unknown.
	PID int
	// Foreign reports whether the process is a PostgreSQL server that Start did not start.
	Foreign bool
}

// Error describes which process to stop.
func (e *InUseError) Error() string {
	who := "another process"
	if e.PID != 0 {
		who = fmt.Sprintf("process %d", e.PID)
	}
	if e.Foreign {
		who = "a PostgreSQL server that another program started, " + who
	}
	return fmt.Sprintf("postgres data folder %s is in use by %s: stop it or choose another folder", e.DataDir, who)
}
