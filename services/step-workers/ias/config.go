package ias

import (
	"errors"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/service"
)

// Config is the configuration of the worker.
type Config struct {
	// URL is the address of IAS. Without it the worker does not call IAS and skips its steps.
	URL      string        `env:"KEB_IAS_URL"`
	Username string        `env:"KEB_IAS_USERNAME" envDefault:"keb"`
	Password string        `env:"KEB_IAS_PASSWORD" envDefault:"keb"`
	Timeout  time.Duration `env:"KEB_IAS_TIMEOUT" envDefault:"60s"`
	// RetryInterval applies to IAS_Deregistration, RegistrationInterval to IAS_Registration.
	RetryInterval        time.Duration `env:"KEB_PACE" envDefault:"5s"`
	RegistrationInterval time.Duration `env:"KEB_PACE" envDefault:"10s"`
	// IdentityProvider is the name of the identity provider for logins to Grafana.
	IdentityProvider string `env:"KEB_IAS_IDENTITY_PROVIDER" envDefault:"SAP"`
}

// Validate reports every invalid setting. Without a URL, all settings are valid.
func (c Config) Validate() error {
	if c.URL == "" {
		return nil
	}
	err := extclient.CheckURL("KEB_IAS_URL", c.URL)
	return errors.Join(err, service.Positive("KEB_PACE", min(c.RetryInterval, c.RegistrationInterval)))
}
