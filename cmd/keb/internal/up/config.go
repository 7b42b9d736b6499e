// Package up composes the whole system into one process: NATS, Postgres, the
// simulated landscape, broker, orchestrator and all step workers.
package up

import (
	"errors"
	"net/http"
)

// Config holds the settings of keb up itself. The services read theirs from their variables.
type Config struct {
	// Environment holds the variables of the services (docs/configuration.md), already overridden by flags.
	Environment map[string]string
	// DataDir holds everything that survives a restart.
	DataDir string
	// Token is the access token of the demo for the operator API.
	Token string
	// Transport is the transport of requests to the OSB and the operator API, for TLS; nil means the default transport.
	Transport http.RoundTripper
	// Demo provisions a sample runtime at start.
	Demo bool
	// Jobs sets how often the jobs run.
	Jobs JobTimes
	// Fast shortens the waits of the landscape and the workers that no variable sets.
	Fast bool
	// Program is the command that starts keb, for hints.
	Program string
	// Verbose also prints the log.
	Verbose bool
}

// Validate reports every invalid setting. It has no side effects.
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
