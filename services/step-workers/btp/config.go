package btp

import (
	"errors"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// Config is the configuration of the worker.
type Config struct {
	provisioner.ClientConfig
	// RuntimeTimeout is the timeout of one call to the Kubernetes API of a runtime.
	RuntimeTimeout time.Duration `env:"KEB_BTP_RUNTIME_TIMEOUT" envDefault:"30s"`
	// RetryInterval is the delay after an error and between two checks; 0 means that of the process file.
	RetryInterval time.Duration `env:"KEB_PACE" envDefault:"0s"`
	// SoftDeleteAfter is how long BTPOperator_Cleanup waits for the BTP operator before it removes the finalizers. It must be
	// shorter than the step's wait.timeout in the process file.
	SoftDeleteAfter time.Duration `env:"KEB_BTP_SOFT_DELETE_AFTER" envDefault:"30m"`
}

// Validate reports every invalid field.
func (c Config) Validate() error {
	return errors.Join(extclient.CheckURL("KEB_PROVISIONER_URL", c.ProvisionerURL), service.NotNegative("KEB_PACE", c.RetryInterval),
		service.Positive("KEB_BTP_RUNTIME_TIMEOUT", c.RuntimeTimeout), service.Positive("KEB_BTP_SOFT_DELETE_AFTER", c.SoftDeleteAfter))
}
