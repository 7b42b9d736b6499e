package contract

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

// Defaults of Config.
const (
	DefaultConcurrency = 8
	DefaultCommands    = 300
	DefaultPatience    = 30 * time.Second
	DefaultDrain       = 20 * time.Second
)

// Config configures Run.
type Config struct {
	// Worker is the name of the worker, as in the process files.
	Worker string
	// Steps lists the steps to check; empty means all registered steps.
	Steps []string
	// Cases lists commands with known answers; optional. The other checks send the first case of a step that sets neither Takes nor Only.
	Cases []Case
	// Starter starts the worker; nil means that the worker is started externally, see Attach.
	Starter Starter
	// Attach is called once with the worker's environment if there is no Starter.
	Attach func(Environment)
	// Checks lists the checks to run; empty means all. The check of the registration always runs.
	Checks []string
	// Concurrency is the maximum number of steps in parallel, set by KEB_WORKER_CONCURRENCY; 0 means 8.
	Concurrency int
	// Commands is the number of commands in the check "throughput"; 0 means 300.
	Commands int
	// Patience is the time limit for the worker to register and to answer a command; 0 means 30 s.
	Patience time.Duration
	// Drain is the time limit for running steps when the worker stops, set by KEB_WORKER_DRAIN_TIMEOUT; 0 means 20 s.
	Drain time.Duration
	// AckWait replaces the ack wait of the contract in tests; 0 means the value of the contract.
	AckWait time.Duration
	// Port is the port of the bus on the loopback address; 0 means any.
	Port int
	// Progress is called after each check; optional.
	Progress func(Finding)
}

// Validate reports every invalid field.
func (c *Config) Validate() error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if err := worker.CheckName(c.Worker); err != nil {
		problems = append(problems, err)
	}
	for _, name := range c.Steps {
		if !isStepName(name) {
			bad("step %q: use letters, digits, hyphens and underscores", name)
		}
	}
	for i := range c.Cases {
		if err := c.Cases[i].validate(); err != nil {
			problems = append(problems, err)
		}
	}
	for _, name := range c.Checks {
		if !slices.Contains(Names(), name) {
			bad("check %q is not one of them; allowed: %q", name, Names())
		}
	}
	for _, n := range []struct {
		name       string
		value, max int
	}{{"concurrency", c.Concurrency, 1000}, {"commands", c.Commands, 100_000}, {"port", c.Port, 65535}} {
		if n.value < 0 || n.value > n.max {
			bad("%s %d: use 0 to %d", n.name, n.value, n.max)
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"patience", c.Patience}, {"drain", c.Drain}, {"ack wait", c.AckWait}} {
		if d.value < 0 || d.value > time.Hour {
			bad("%s %s: use a time up to an hour", d.name, d.value)
		}
	}
	if c.Starter == nil && c.Attach == nil {
		bad("the worker is not started: set Starter or Attach")
	}
	return errors.Join(problems...)
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	def(&c.Patience, DefaultPatience)
	def(&c.Drain, DefaultDrain)
	def(&c.AckWait, event.CommandsConsumer(c.Worker).AckWait)
	if c.Concurrency == 0 {
		c.Concurrency = DefaultConcurrency
	}
	if c.Commands == 0 {
		c.Commands = DefaultCommands
	}
	return c
}

func isStepName(name string) bool {
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' {
			return false
		}
	}
	return name != "" && len(name) <= 64 && name[0] != '-' && name[0] != '_'
}
