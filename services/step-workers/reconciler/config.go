package reconciler

import (
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
)

// Config is the configuration of the worker.
type Config struct {
	// URL is the address of the API with its version.
	URL     string        `env:"KEB_RECONCILER_URL" envDefault:"http://127.0.0.1:8090/reconciler/v1"`
	Timeout time.Duration `env:"KEB_RECONCILER_TIMEOUT" envDefault:"30s"`
	// KymaVersion is the version of orders that name none, KymaProfile that of runtimes other than trial and free.
	KymaVersion string `env:"KEB_KYMA_VERSION" envDefault:"2.20.0"`
	KymaProfile string `env:"KEB_KYMA_PROFILE" envDefault:"Production"`
	// Components are the Kyma components that every runtime gets, each in the namespace kyma-system.
	Components []string `env:"KEB_KYMA_COMPONENTS" envDefault:"cluster-essentials,istio,btp-operator,busola-migrator"`

	RetryInterval time.Duration `env:"KEB_RECONCILER_RETRY_INTERVAL" envDefault:"5s"`
	// PollInterval is between two looks at a cluster, ErrorInterval follows a look that failed, and ProblemInterval
	// one that shows a problem which the Reconciler itself is about to try again.
	PollInterval    time.Duration `env:"KEB_RECONCILER_POLL_INTERVAL" envDefault:"30s"`
	ErrorInterval   time.Duration `env:"KEB_RECONCILER_ERROR_INTERVAL" envDefault:"1m"`
	ProblemInterval time.Duration `env:"KEB_RECONCILER_PROBLEM_INTERVAL" envDefault:"10m"`
	// CheckTimeout is when Check_Cluster_Configuration gives up: it takes the cluster away from the Reconciler, which
	// would try for ever, and fails. It must be shorter than the step's wait.timeout and retry.timeout in the process file.
	CheckTimeout time.Duration `env:"KEB_RECONCILER_CHECK_TIMEOUT" envDefault:"115m"`
}

// Validate names every field that cannot work.
func (c Config) Validate() error {
	errs := []error{extclient.CheckURL("KEB_RECONCILER_URL", c.URL)}
	if c.KymaVersion == "" || c.KymaProfile == "" {
		errs = append(errs, errors.New("KEB_KYMA_VERSION and KEB_KYMA_PROFILE must not be empty"))
	}
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
