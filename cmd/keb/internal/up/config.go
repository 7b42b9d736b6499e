// Package up composes the whole system into one process: NATS, Postgres, the
// simulated landscape, broker, orchestrator and all step workers.
package up

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator"
)

// Config says how the system runs. The services below read nothing from the environment.
type Config struct {
	// OSBAddr, OperatorAddr and LandscapeAddr are loopback addresses to listen on, "host:port".
	OSBAddr, OperatorAddr, LandscapeAddr string
	// DataDir holds everything that survives a restart.
	DataDir string
	// DatabaseURL is a Postgres database to use; empty starts an own server in the data folder.
	DatabaseURL string
	// User and Password are the platform's at the OSB API.
	User, Password string
	// Overlays are folders with process overlays, applied in order.
	Overlays []string
	// MaintenancePolicy is a file that says when runtimes may be upgraded; empty leaves it to their shoots.
	MaintenancePolicy string
	// Admission is the greatest number of operations in progress by type; a type that is not named has no limit.
	Admission map[event.OperationType]int
	// AccessTokensFile says who may use the operator API; empty asks nobody. Token is one that the demo may look with.
	AccessTokensFile, Token string
	// Bindings is how many accounts of each hyperscaler the landscape has from the start; 0 means its default.
	Bindings int
	// Demo provisions a sample runtime at the start.
	Demo bool
	// Jobs is how often the jobs run.
	Jobs JobTimes
	// Fast takes the waits out of the landscape and the workers.
	Fast bool
	// Program is how keb is called, for hints.
	Program string
	// Verbose prints the log besides writing it to the data folder.
	Verbose bool
}

// Times of the simulated landscape, unless Fast.
const (
	clusterTime   = 3 * time.Second
	reconcileTime = time.Second
)

// natsPort is the port that NATS takes if it is free.
const natsPort = 4222

// Validate names every setting that cannot be. Only loopback addresses are allowed, for user and password are known.
func (c Config) Validate() error {
	var problems []error
	used := map[string]string{}
	for _, a := range []struct{ flag, variable, addr string }{
		{"--osb-addr", "KEB_OSB_ADDR", c.OSBAddr},
		{"--operator-addr", "KEB_OPERATOR_ADDR", c.OperatorAddr},
		{"--landscape-addr", "KEB_LANDSCAPE_ADDR", c.LandscapeAddr},
	} {
		name := a.flag + " (" + a.variable + ")"
		host, port, err := net.SplitHostPort(a.addr)
		switch {
		case err != nil:
			problems = append(problems, fmt.Errorf("%s: %q is not host:port", name, a.addr))
		case !loopback(host):
			problems = append(problems, fmt.Errorf("%s: %q is not a loopback address; keb up is for one machine, write for example 127.0.0.1:%s", name, a.addr, port))
		case port != "0" && used[a.addr] != "":
			problems = append(problems, fmt.Errorf("%s: %s is the address of %s already", name, a.addr, used[a.addr]))
		}
		used[a.addr] = a.flag
	}
	problems = append(problems, c.Jobs.validate())
	if err := orchestrator.CheckMaintenancePolicy(c.MaintenancePolicy); err != nil {
		problems = append(problems, fmt.Errorf("--maintenance-policy (KEB_MAINTENANCE_POLICY): %w", err))
	}
	if err := c.access().Validate(); err != nil {
		problems = append(problems, fmt.Errorf("--access-tokens-file: %w", err))
	}
	if c.DataDir == "" {
		problems = append(problems, errors.New("--data-dir (KEB_DATA_DIR): must not be empty"))
	}
	return errors.Join(problems...)
}

// access is the same for the broker and the orchestrator.
func (c Config) access() access.Config { return access.Config{TokensFile: c.AccessTokensFile} }

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
