package hyperscaler

import (
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

// Config is the configuration of the worker.
type Config struct {
	kube.Gardener

	// RetryInterval follows a failed call, and an empty pool.
	RetryInterval time.Duration `env:"KEB_HYPERSCALER_RETRY_INTERVAL" envDefault:"10s"`
	// ClaimTime is how long a claim keeps an account although no cluster refers to it yet. It must be longer than an operation
	// may take to create its cluster.
	ClaimTime time.Duration `env:"KEB_HYPERSCALER_CLAIM_TIME" envDefault:"24h"`
}

// Validate names every field that cannot work.
func (c Config) Validate() error {
	errs := []error{c.Gardener.Validate()}
	if c.RetryInterval <= 0 {
		errs = append(errs, fmt.Errorf("KEB_HYPERSCALER_RETRY_INTERVAL is %s: want more than 0", c.RetryInterval))
	}
	if c.ClaimTime <= 0 {
		errs = append(errs, fmt.Errorf("KEB_HYPERSCALER_CLAIM_TIME is %s: want more than 0", c.ClaimTime))
	}
	return errors.Join(errs...)
}
