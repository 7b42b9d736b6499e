package hyperscaler

import (
	"errors"
	"time"

	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

// Config is the configuration of the worker.
type Config struct {
	kube.Gardener

	// RetryInterval is the delay after a failed call, or when the pool is empty; 0 means that of the process file.
	RetryInterval time.Duration `env:"KEB_PACE" envDefault:"0s"`
	// ClaimTime is how long a claim keeps an account without a cluster, for tests; zero means 24 hours. It must be longer than the time from
	// an order to the creation of its cluster.
	ClaimTime time.Duration `env:"-"`
}

// Validate reports every invalid field.
func (c Config) Validate() error {
	return errors.Join(c.Gardener.Validate(), service.NotNegative("KEB_PACE", c.RetryInterval))
}
