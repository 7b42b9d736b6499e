package lifecyclemanager

import (
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

// Config is the configuration of the worker.
type Config struct {
	kube.ControlPlane
	// Namespace is where the Kyma resources are.
	Namespace string `env:"KEB_KYMA_RESOURCE_NAMESPACE" envDefault:"kcp-system"`
	// Channel is the release channel of a Kyma resource's modules, and Modules are those it has from the start.
	Channel string   `env:"KEB_KYMA_CHANNEL" envDefault:"regular"`
	Modules []string `env:"KEB_KYMA_MODULES" envDefault:"btp-operator"`
	// RetryInterval follows a failed call, PollInterval is between two looks at a resource being deleted.
	RetryInterval time.Duration `env:"KEB_KYMA_RETRY_INTERVAL" envDefault:"1s"`
	PollInterval  time.Duration `env:"KEB_KYMA_POLL_INTERVAL" envDefault:"15s"`
}

// Validate names every field that cannot work.
func (c Config) Validate() error {
	errs := []error{c.ControlPlane.Validate()}
	if c.Namespace == "" || c.Channel == "" {
		errs = append(errs, errors.New("KEB_KYMA_RESOURCE_NAMESPACE and KEB_KYMA_CHANNEL must not be empty"))
	}
	if c.RetryInterval <= 0 || c.PollInterval <= 0 {
		errs = append(errs, fmt.Errorf("KEB_KYMA_RETRY_INTERVAL and KEB_KYMA_POLL_INTERVAL are %s and %s: want more than 0", c.RetryInterval, c.PollInterval))
	}
	return errors.Join(errs...)
}
