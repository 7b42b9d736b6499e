package ias

import (
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
)

// Config is the configuration of the worker.
type Config struct {
	URL      string `env:"KEB_IAS_URL" envDefault:"http://127.0.0.1:8090/ias"`
	Username string `env:"KEB_IAS_USERNAME" envDefault:"keb"`
	Password string `env:"KEB_IAS_PASSWORD" envDefault:"keb"`
	// PasswordFile names a file with the password, which wins.
	PasswordFile  string        `env:"KEB_IAS_PASSWORD_FILE,file"`
	Timeout       time.Duration `env:"KEB_IAS_TIMEOUT" envDefault:"30s"`
	RetryInterval time.Duration `env:"KEB_IAS_RETRY_INTERVAL" envDefault:"5s"`
}

// Validate names every field that cannot work.
func (c Config) Validate() error {
	err := extclient.CheckURL("KEB_IAS_URL", c.URL)
	if c.RetryInterval <= 0 {
		err = errors.Join(err, fmt.Errorf("KEB_IAS_RETRY_INTERVAL is %s: want more than 0", c.RetryInterval))
	}
	return err
}
