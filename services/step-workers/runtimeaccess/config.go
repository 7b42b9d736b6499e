package runtimeaccess

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
	RuntimeTimeout time.Duration `env:"KEB_RUNTIME_ACCESS_TIMEOUT" envDefault:"5s"`
}

// Validate reports every invalid field.
func (c Config) Validate() error {
	return errors.Join(extclient.CheckURL("KEB_PROVISIONER_URL", c.ProvisionerURL),
		service.Positive("KEB_PROVISIONER_TIMEOUT", c.ProvisionerTimeout), service.Positive("KEB_RUNTIME_ACCESS_TIMEOUT", c.RuntimeTimeout))
}
