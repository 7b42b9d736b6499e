package hyperscaler

import (
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
)

// Config is the configuration of the worker.
type Config struct {
	// GardenerKubeconfig is the path of a kubeconfig; when it is set, GardenerURL and GardenerToken are not used.
	GardenerKubeconfig string        `env:"KEB_GARDENER_KUBECONFIG"`
	GardenerURL        string        `env:"KEB_GARDENER_URL" envDefault:"http://127.0.0.1:8090/k8s/gardener"`
	GardenerToken      string        `env:"KEB_GARDENER_TOKEN" envDefault:"keb"`
	GardenerTimeout    time.Duration `env:"KEB_GARDENER_TIMEOUT" envDefault:"30s"`
	// Project is the Gardener project; its namespace is "garden-<project>".
	Project string `env:"KEB_GARDENER_PROJECT" envDefault:"kyma"`
	// RetryInterval follows a failed call, and an empty pool.
	RetryInterval time.Duration `env:"KEB_HYPERSCALER_RETRY_INTERVAL" envDefault:"10s"`
	// ClaimTime is how long a claim keeps an account although no cluster refers to it yet. It must be longer than an operation
	// may take to create its cluster.
	ClaimTime time.Duration `env:"KEB_HYPERSCALER_CLAIM_TIME" envDefault:"24h"`
}

// Validate names every field that cannot work.
func (c Config) Validate() error {
	var errs []error
	if c.GardenerKubeconfig == "" {
		errs = append(errs, extclient.CheckURL("KEB_GARDENER_URL", c.GardenerURL))
	}
	if c.Project == "" {
		errs = append(errs, errors.New("KEB_GARDENER_PROJECT is empty: want the name of a Gardener project"))
	}
	if c.RetryInterval <= 0 {
		errs = append(errs, fmt.Errorf("KEB_HYPERSCALER_RETRY_INTERVAL is %s: want more than 0", c.RetryInterval))
	}
	if c.ClaimTime <= 0 {
		errs = append(errs, fmt.Errorf("KEB_HYPERSCALER_CLAIM_TIME is %s: want more than 0", c.ClaimTime))
	}
	return errors.Join(errs...)
}

func (c Config) namespace() string { return "garden-" + c.Project }
