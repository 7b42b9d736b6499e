package edp

import (
	"errors"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/service"
)

// Config is the configuration of the worker.
type Config struct {
	// URL is the address of EDP. Without it the worker does not call EDP and skips its steps.
	URL      string `env:"KEB_EDP_URL"`
	TokenURL string `env:"KEB_EDP_TOKEN_URL"`
	// Namespace is the EDP namespace; the client id is "edp-namespace;<namespace>".
	Namespace string        `env:"KEB_EDP_NAMESPACE" envDefault:"kyma-dev"`
	Secret    string        `env:"KEB_EDP_SECRET" envDefault:"keb"`
	Timeout   time.Duration `env:"KEB_EDP_TIMEOUT" envDefault:"30s"`
	// Environment is the environment of the data tenants, for example "prod".
	Environment string `env:"KEB_EDP_ENVIRONMENT" envDefault:"prod"`
	// RetryInterval is the delay after an error; 0 means that of the process file.
	RetryInterval    time.Duration `env:"KEB_PACE" envDefault:"0s"`
	ConflictInterval time.Duration `env:"KEB_PACE" envDefault:"1s"`
}

// Validate reports every invalid setting. Without a URL, all settings are valid.
func (c Config) Validate() error {
	if c.URL == "" {
		return nil
	}
	errs := []error{extclient.CheckURL("KEB_EDP_URL", c.URL), extclient.CheckURL("KEB_EDP_TOKEN_URL", c.TokenURL)}
	if c.Namespace == "" || c.Environment == "" {
		errs = append(errs, errors.New("KEB_EDP_NAMESPACE and KEB_EDP_ENVIRONMENT must not be empty"))
	}
	errs = append(errs, service.Positive("KEB_PACE", c.ConflictInterval))
	return errors.Join(errs...)
}
