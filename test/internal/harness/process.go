package harness

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stopLimit is how long a process may take to end when it is asked to.
const stopLimit = 45 * time.Second

// tailLines is how much of the output is shown when a test has failed.
const tailLines = 40

// Process is a running program. Its output, standard output and error together, goes to a file.
type Process struct {
	t     testing.TB
	cmd   *exec.Cmd
	file  string
	ended chan struct{} // closed when it has ended
}

// Spawn starts a program. The environment is the test's without what configures keb, and env. When the test ends the
// process is stopped; when it has failed the end of the output is shown.
func Spawn(t testing.TB, path string, env []string, args ...string) *Process {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), filepath.Base(path)+".out"))
	require.NoError(t, err)
	p := &Process{t: t, file: file.Name(), ended: make(chan struct{})}
	p.cmd = exec.Command(path, args...)
	p.cmd.Env = append(environment(), env...)
	p.cmd.Stdout, p.cmd.Stderr = file, file
	err = p.cmd.Start()
	// The process has its own copy.
	require.NoErrorf(t, errors.Join(err, file.Close()), "start %s", filepath.Base(path))
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // ProcessState says how it ended
	}()
	t.Cleanup(func() {
		p.Stop()
		if out := p.Output(); t.Failed() {
			t.Logf("%s (process %d) printed:\n%s", filepath.Base(path), p.cmd.Process.Pid, tail(out))
		} else if strings.Contains(out, "DATA RACE") {
			t.Errorf("a data race in %s:\n%s", filepath.Base(path), out)
		}
	})
	return p
}

// environment is the test's, without what would configure keb.
func environment() []string {
	var env []string
	for _, variable := range os.Environ() {
		if strings.HasPrefix(variable, "KEB_") && !strings.HasPrefix(variable, "KEB_POSTGRES_BIN=") || strings.HasPrefix(variable, "DEMO=") {
			continue
		}
		env = append(env, variable)
	}
	// A program with the race detector would sleep for a second at its end.
	return append(env, strings.TrimSpace("GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0"))
}

// Output is what the process has printed so far.
func (p *Process) Output() string {
	p.t.Helper()
	content, err := os.ReadFile(p.file)
	if err != nil {
		p.t.Errorf("read the output: %v", err)
	}
	return string(content)
}

// PID is the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Kill ends the process without a chance to clean up, and waits for its end.
func (p *Process) Kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("kill process %d: %v", p.cmd.Process.Pid, err)
	}
	<-p.ended
}

// Stop asks the process to end, as Ctrl-C does, and waits for its end. It may have ended already.
func (p *Process) Stop() {
	p.t.Helper()
	if p.Ended() {
		return
	}
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("stop process %d: %v", p.cmd.Process.Pid, err)
	}
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-p.ended:
	case <-limit.C:
		p.t.Errorf("%s did not stop within %s", filepath.Base(p.cmd.Path), stopLimit)
		p.Kill()
	}
}

// ExitCode waits for the end of the process and returns its exit code.
func (p *Process) ExitCode(within time.Duration) int {
	p.t.Helper()
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case <-p.ended:
	case <-limit.C:
		p.t.Fatalf("%s did not end within %s", filepath.Base(p.cmd.Path), within)
	}
	return p.cmd.ProcessState.ExitCode()
}

func tail(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
