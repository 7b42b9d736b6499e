package pglocal

import (
	"errors"
	"fmt"
)

// ErrNoBinaries is returned when no PostgreSQL server binaries are found. Its text names the ways out.
var ErrNoBinaries = errors.New("no PostgreSQL server binaries found: " +
	"install them (Debian and Ubuntu: apt-get install postgresql), " +
	"or name their folder in KEB_POSTGRES_BIN, " +
	"or give the address of a running server instead, or allow them to be downloaded")

// ErrPortInUse is matched by the error for a port that another program listens on.
var ErrPortInUse = errors.New("port is in use")

// InUseError says that the data folder belongs to a process that runs.
type InUseError struct {
	DataDir string
	// PID is the owner's process id; zero when unknown.
	PID int
	// Foreign is set when a PostgreSQL server that Start did not start runs there.
	Foreign bool
}

// Error says which process to stop.
func (e *InUseError) Error() string {
	who := "another process"
	if e.PID != 0 {
		who = fmt.Sprintf("process %d", e.PID)
	}
	if e.Foreign {
		who = "a PostgreSQL server started by someone else, " + who
	}
	return fmt.Sprintf("postgres data folder %s is in use by %s: stop it or choose another folder", e.DataDir, who)
}
