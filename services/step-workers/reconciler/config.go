package reconciler

import (
	"errors"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/service"
)

// Config is the configuration of the worker.
type Config struct {
	// URL is the address of the API with its version. It is required.
	URL     string        `env:"KEB_RECONCILER_URL"`
	Timeout time.Duration `env:"KEB_RECONCILER_TIMEOUT" envDefault:"30s"`

	// RetryInterval is the delay after a failed call; 0 means that of the process file.
	RetryInterval time.Duration `env:"KEB_PACE" envDefault:"0s"`
	// PollInterval is the interval between two checks of a cluster. ErrorInterval is the delay after a check with a surprising status, and
	// ProblemInterval after one with a problem that the Reconciler will retry.
	PollInterval    time.Duration `env:"KEB_PACE" envDefault:"30s"`
	ErrorInterval   time.Duration `env:"KEB_PACE" envDefault:"1m"`
	ProblemInterval time.Duration `env:"KEB_PACE" envDefault:"10m"`
	// CheckTimeout is when Check_Cluster_Configuration gives up: it deregisters the cluster, which the Reconciler would retry forever, and
	// fails. It must be shorter than the step's wait.timeout and retry.timeout in the process file.
	CheckTimeout time.Duration `env:"KEB_RECONCILER_CHECK_TIMEOUT" envDefault:"115m"`
}

// Validate reports every invalid field.
func (c Config) Validate() error {
	return errors.Join(extclient.CheckURL("KEB_RECONCILER_URL", c.URL), service.Positive("KEB_RECONCILER_CHECK_TIMEOUT", c.CheckTimeout),
		service.Positive("KEB_PACE", min(c.PollInterval, c.ErrorInterval, c.ProblemInterval)))
}
