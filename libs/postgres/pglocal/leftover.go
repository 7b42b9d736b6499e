package pglocal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// The time limits for a leftover server to end: after a fast and after an immediate shutdown.
	fastShutdown      = 20 * time.Second
	immediateShutdown = 5 * time.Second
)

// pidFile holds the needed values of postmaster.pid
// (line 1 the process id, line 8 the state; https://www.postgresql.org/docs/current/storage-file-layout.html).
type pidFile struct {
	pid   int
	ready bool
}

const pidFileStatusLine = 7

func readPIDFile(dir string) (pidFile, bool) {
	data, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	if err != nil {
		return pidFile{}, false
	}
	lines := strings.Split(string(data), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || pid <= 0 {
		return pidFile{}, false
	}
	return pidFile{pid: pid, ready: len(lines) > pidFileStatusLine && strings.TrimSpace(lines[pidFileStatusLine]) == "ready"}, true
}

// stopLeftover stops the server that a killed process left in the folder. The caller holds the folder's lock, so the parent has ended.
func (s *Server) stopLeftover(ctx context.Context) error {
	file, ok := readPIDFile(s.dir)
	if !ok {
		return nil
	}
	switch inspect(file.pid, s.dir) {
	case processGone, processOther:
		return s.disownPIDFile(file.pid)
	case processForeignServer:
		return &InUseError{DataDir: s.dir, PID: file.pid, Foreign: true}
	case processOurServer:
	}
	s.log.Info("stopping a leftover postgres of a killed run", "pid", file.pid, "data_dir", s.dir)
	gone := make(chan struct{})
	watch, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		poll := time.NewTicker(pollEvery)
		defer poll.Stop()
		for {
			if inspect(file.pid, s.dir) != processOurServer {
				close(gone)
				return
			}
			select {
			case <-watch.Done():
				return
			case <-poll.C:
			}
		}
	}()
	limit, cancelLimit := context.WithTimeout(ctx, fastShutdown)
	defer cancelLimit()
	err := endProcess(limit, file.pid, gone)
	cancel()
	<-watched
	if err != nil {
		return fmt.Errorf("start postgres: stop the leftover server in %s: %w", s.dir, err)
	}
	return s.disownPIDFile(file.pid)
}

// disownPIDFile changes the process id in the pid file of a server that has ended. That id may now belong to a zombie or another
// process, which a new server would mistake for its predecessor. A server ignores the id of its parent, so the new value is the id of
// this process. The rest of the file must stay: the server uses it to find backends of its predecessor that still write.
func (s *Server) disownPIDFile(pid int) error {
	path := filepath.Join(s.dir, "postmaster.pid")
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	rest, ok := strings.CutPrefix(string(data), strconv.Itoa(pid)+"\n")
	if !ok {
		return nil
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"+rest), 0o600); err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	return nil
}

// endProcess stops a server: fast until ctx ends, then immediately, then by force. gone is closed when it has ended.
func endProcess(ctx context.Context, pid int, gone <-chan struct{}) error {
	select {
	case <-gone:
		return nil
	default:
	}
	steps := []struct {
		signal syscall.Signal
		wait   time.Duration // zero: until ctx ends
	}{
		{syscall.SIGINT, 0}, {syscall.SIGQUIT, immediateShutdown}, {syscall.SIGKILL, immediateShutdown},
	}
	for _, step := range steps {
		if err := syscall.Kill(pid, step.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop postgres process %d: %w", pid, err)
		}
		wait, cancel := ctx, context.CancelFunc(func() {})
		if step.wait > 0 {
			wait, cancel = context.WithTimeout(context.WithoutCancel(ctx), step.wait)
		}
		select {
		case <-gone:
			cancel()
			return nil
		case <-wait.Done():
			cancel()
		}
	}
	return fmt.Errorf("stop postgres process %d: it does not end", pid)
}
