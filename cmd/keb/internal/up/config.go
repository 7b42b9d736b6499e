// Package up composes the whole system into one process: NATS, Postgres, the
// simulated landscape, broker, orchestrator and all step workers.
package up

import (
	"errors"
	"net/http"
)

// Config says how the system runs, besides what the services read from their variables.
type Config struct {
	// Environment holds the variables of the services (docs/configuration.md). A flag of the command line has replaced its variable.
	Environment map[string]string
	// DataDir holds everything that survives a restart.
	DataDir string
	// Token is one for the operator API that the demo may use.
	Token string
	// Transport is that of requests to the OSB and the operator API, for TLS; nil is the usual one.
	Transport http.RoundTripper
	// Demo provisions a sample runtime at the start.
	Demo bool
	// Jobs is how often the jobs run.
	Jobs JobTimes
	// Fast takes the waits out of the landscape and the workers, where no variable sets them.
	Fast bool
	// Program is how keb is called, for hints.
	Program string
	// Verbose prints the log besides writing it to the data folder.
	Verbose bool
}

// Validate reports every invalid setting. It starts nothing and writes nothing.
func (c Config) Validate() error {
	var problems []error
	if c.DataDir == "" {
		problems = append(problems, errors.New("--data-dir (KEB_DATA_DIR): must not be empty"))
	}
	problems = append(problems, c.Jobs.validate())
	if addrs, err := c.addresses(); err != nil {
		problems = append(problems, err)
	} else {
		_, err := c.settings(addrs.places(""))
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}
