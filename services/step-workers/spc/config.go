package spc

import (
	"errors"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/service"
)

// Config is the configuration of the worker.
type Config struct {
	// URL is the address of SPC. Without it the worker does not call SPC and skips its steps.
	URL string `env:"KEB_SPC_URL"`
	// Timeout is the timeout of one call.
	Timeout time.Duration `env:"KEB_SPC_TIMEOUT" envDefault:"60s"`
	// RetryInterval is the delay after an error; 0 means that of the process file.
	RetryInterval time.Duration `env:"KEB_PACE" envDefault:"0s"`
}

// Validate reports every invalid setting. Without a URL, all settings are valid.
func (c Config) Validate() error {
	if c.URL == "" {
		return nil
	}
	err := extclient.CheckURL("KEB_SPC_URL", c.URL)
	return errors.Join(err, service.NotNegative("KEB_PACE", c.RetryInterval))
}
