package contract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Environment is the complete configuration of a started worker.
type Environment struct {
	// URL, User and Password are for the connection to the bus.
	URL, User, Password string
	// StageKeys is the keyring of the stage memory; empty in the check no-stage-keys.
	StageKeys string
	// Concurrency and Drain are settings that the checks rely on.
	Concurrency int
	Drain       time.Duration
}

// Variables returns the environment as variables in the form NAME=value.
func (e Environment) Variables() []string {
	variables := []string{
		"KEB_NATS_URL=" + e.URL,
		"KEB_NATS_USER=" + e.User,
		"KEB_NATS_PASSWORD=" + e.Password,
		"KEB_STAGE_KEYS=" + e.StageKeys,
		"KEB_WORKER_CONCURRENCY=" + strconv.Itoa(e.Concurrency),
		"KEB_WORKER_DRAIN_TIMEOUT=" + e.Drain.String(),
	}
	return slices.DeleteFunc(variables, func(v string) bool { return v == "KEB_STAGE_KEYS=" })
}

// Starter starts instances of a worker.
type Starter interface {
	// Start starts an instance, whose output is written to output.
	Start(env Environment, output io.Writer) (Instance, error)
}

// Instance is a running worker.
type Instance interface {
	// Stop sends SIGTERM, as Kubernetes does.
	Stop() error
	// Kill kills the instance and waits for its end.
	Kill()
	// Done is closed when the instance has ended. Err then returns its error.
	Done() <-chan struct{}
	Err() error
}

// Command starts a worker as a program with a path and arguments. The program gets the environment of this process without variables of
// KEB, and that of Environment.
func Command(program string, args ...string) Starter { return command{program: program, args: args} }

type command struct {
	program string
	args    []string
}

// Start starts the program in its own process group, so that Ctrl-C stops only the check.
func (c command) Start(env Environment, output io.Writer) (Instance, error) {
	cmd := exec.Command(c.program, c.args...)
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); !ours(name) {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, env.Variables()...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.WaitDelay = time.Second // for processes that the program leaves running
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the worker: %w", err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() { // ends with the process, for which every owner of an instance waits
		defer close(p.done)
		// Processes that it left running, and unread output, do not count as its error.
		if p.err = cmd.Wait(); errors.Is(p.err, exec.ErrWaitDelay) {
			p.err = nil
		}
	}()
	return p, nil
}

// ours reports whether the kit sets the variable, or the variable contains credentials of the user.
func ours(name string) bool {
	for _, prefix := range []string{"KEB_NATS_", "KEB_STAGE_KEYS"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	switch name {
	case "KEB_WORKER_CONCURRENCY", "KEB_WORKER_DRAIN_TIMEOUT", "KEB_METRICS_ADDR", "KEB_TOKEN", "KEB_OSB_PASSWORD":
		return true
	}
	return false
}

type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

func (p *process) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the worker: %w", err)
	}
	return nil
}

func (p *process) Kill() {
	// Signal the whole group: the program may be a shell or npm, which started the worker.
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended by itself
	<-p.done
}

// freeze stops the processes of the instance without their knowledge, until thaw.
func (p *process) freeze() error { return p.signalAll("freeze", syscall.SIGSTOP) }

func (p *process) thaw() error { return p.signalAll("continue", syscall.SIGCONT) }

func (p *process) signalAll(what string, s syscall.Signal) error {
	if err := syscall.Kill(-p.cmd.Process.Pid, s); err != nil {
		return fmt.Errorf("%s the worker: %w", what, err)
	}
	return nil
}

func (p *process) Done() <-chan struct{} { return p.done }

func (p *process) Err() error {
	<-p.done
	return p.err
}

// Func starts a worker in this process, for tests in Go: run works until ctx ends, then drains and returns. A kill cuts its connection and
// ends ctx.
func Func(run func(ctx context.Context, env Environment, output io.Writer) error) Starter {
	return function(run)
}

type function func(ctx context.Context, env Environment, output io.Writer) error

func (f function) Start(env Environment, output io.Writer) (Instance, error) {
	ctx, cancel := context.WithCancel(context.Background())
	r := &routine{cancel: cancel, done: make(chan struct{})}
	go func() { // every owner of an instance waits for it
		defer close(r.done)
		r.err = f(ctx, env, output)
	}()
	return r, nil
}

type routine struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func (r *routine) Stop() error {
	r.cancel()
	return nil
}

func (r *routine) Kill() {
	r.cancel()
	<-r.done
}

func (r *routine) Done() <-chan struct{} { return r.done }

func (r *routine) Err() error {
	<-r.done
	return r.err
}

// keepOutput is the number of bytes that are kept of the end of a worker's output.
const keepOutput = 16 << 10

// output records the output of the instances of a worker, and searches it for secrets.
type output struct {
	mu      sync.Mutex
	secrets map[string]string // names by value
	longest int
	tail    []byte
	found   map[string]bool
}

func newOutput(secrets map[string]string) *output {
	o := &output{secrets: secrets, found: map[string]bool{}}
	for value := range secrets {
		o.longest = max(o.longest, len(value))
	}
	return o
}

// Write never fails.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fresh := append(o.tail[max(0, len(o.tail)-o.longest):len(o.tail):len(o.tail)], p...)
	for value, what := range o.secrets {
		if bytes.Contains(fresh, []byte(value)) {
			o.found[what] = true
		}
	}
	o.tail = append(o.tail, p...)
	if extra := len(o.tail) - keepOutput; extra > 0 {
		o.tail = append([]byte(nil), o.tail[extra:]...)
	}
	return len(p), nil
}

// leaks returns the names of the printed secrets.
func (o *output) leaks() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var leaks []string
	for what := range o.found {
		leaks = append(leaks, what)
	}
	return leaks
}

// last returns the last lines, without secrets.
func (o *output) last(lines int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := strings.TrimSpace(string(o.tail))
	for value := range o.secrets {
		text = strings.ReplaceAll(text, value, "[redacted]")
	}
	all := strings.Split(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
