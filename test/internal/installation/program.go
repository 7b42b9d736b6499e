//go:build linux

package installation

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Program is a process of the installation that is restarted several times.
type Program struct {
	command

	t       testing.TB
	name    string
	log     string
	cmd     *exec.Cmd
	ended   chan struct{}
	stopped bool // by SIGSTOP
}

// command is how a program starts.
type command struct {
	path      string
	args, env []string
}

// Start starts the process in a separate group. The kernel kills it when the test process ends.
func (p *Program) Start() {
	p.t.Helper()
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(p.t, err)
	defer func() { _ = out.Close() }() // the process has its own descriptor
	p.cmd = exec.Command(p.path, p.args...)
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "GOMAXPROCS=2"}, p.env...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.ended, p.stopped = make(chan struct{}), false
	started := make(chan error)
	// The kernel sends the signal when the thread that created the process ends, so keep this thread until the process exits.
	go func(cmd *exec.Cmd, ended chan struct{}) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // its exit status is irrelevant
		}
	}(p.cmd, p.ended)
	require.NoErrorf(p.t, <-started, "start %s", p.name)
}

// Running reports whether the process runs.
func (p *Program) Running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Signal sends a signal to the process, if it runs.
func (p *Program) Signal(s syscall.Signal) {
	if p.Running() {
		_ = syscall.Kill(p.cmd.Process.Pid, s) // it may have exited
	}
}

// Kill ends the process without a chance to clean up, and waits for its end.
func (p *Program) Kill() {
	p.Signal(syscall.SIGKILL)
	if p.cmd != nil {
		<-p.ended
	}
}

// Freeze stops the process until Thaw.
func (p *Program) Freeze() { p.Signal(syscall.SIGSTOP); p.stopped = true }

// Thaw continues a frozen process.
func (p *Program) Thaw() {
	if p.stopped {
		p.Signal(syscall.SIGCONT)
		p.stopped = false
	}
}

// Stop terminates the process with SIGTERM, as a container orchestrator does, and waits.
func (p *Program) Stop() {
	p.Signal(syscall.SIGTERM)
	limit := time.NewTimer(45 * time.Second)
	defer limit.Stop()
	select {
	case <-p.ended:
	case <-limit.C:
		p.t.Errorf("%s did not end within 45 s after SIGTERM", p.name)
		p.Kill()
	}
}

// family returns a process with all its descendants.
func family(pid int) []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it has exited
		}
		// The name is in parentheses and may contain any character.
		text := string(raw)
		fields := strings.Fields(text[strings.LastIndex(text, ")")+1:])
		child, err1 := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parent, err2 := strconv.Atoi(fields[1])
		if errors.Join(err1, err2) == nil {
			children[parent] = append(children[parent], child)
		}
	}
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// tail returns the end of a log, for a failed test.
func tail(path string, lines int) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(raw)), "\n")
	all = slices.DeleteFunc(all, func(l string) bool { return strings.Contains(l, `"level":"INFO"`) })
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
