package reconciler

import (
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
)

// Config is the configuration of the worker.
type Config struct {
	// URL is the address of the API with its version. It is required.
	URL     string        `env:"KEB_RECONCILER_URL"`
	Timeout time.Duration `env:"KEB_RECONCILER_TIMEOUT" envDefault:"30s"`

	RetryInterval time.Duration `env:"KEB_RECONCILER_RETRY_INTERVAL" envDefault:"5s"`
	// PollInterval is the interval between two checks of a cluster. ErrorInterval is the delay after a failed check, and ProblemInterval
	// after a check with a problem that the Reconciler will retry.
	PollInterval    time.Duration `env:"KEB_RECONCILER_POLL_INTERVAL" envDefault:"30s"`
	ErrorInterval   time.Duration `env:"KEB_RECONCILER_ERROR_INTERVAL" envDefault:"1m"`
	ProblemInterval time.Duration `env:"KEB_RECONCILER_PROBLEM_INTERVAL" envDefault:"10m"`
	// CheckTimeout is when Check_Cluster_Configuration gives up: it deregisters the cluster, which the Reconciler would retry forever, and
	// fails. It must be shorter than the step's wait.timeout and retry.timeout in the process file.
	CheckTimeout time.Duration `env:"KEB_RECONCILER_CHECK_TIMEOUT" envDefault:"115m"`
}

// Validate reports every invalid field.
func (c Config) Validate() error {
	errs := []error{extclient.CheckURL("KEB_RECONCILER_URL", c.URL)}
	for name, d := range map[string]time.Duration{
		"KEB_RECONCILER_RETRY_INTERVAL": c.RetryInterval, "KEB_RECONCILER_POLL_INTERVAL": c.PollInterval,
		"KEB_RECONCILER_ERROR_INTERVAL": c.ErrorInterval, "KEB_RECONCILER_PROBLEM_INTERVAL": c.ProblemInterval,
		"KEB_RECONCILER_CHECK_TIMEOUT": c.CheckTimeout,
	} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("%s is %s: want more than 0", name, d))
		}
	}
	return errors.Join(errs...)
}
