package spc

import (
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
)

// Config is the configuration of the worker.
type Config struct {
	URL string `env:"KEB_SPC_URL" envDefault:"http://127.0.0.1:8090/spc"`
	// Timeout is the deadline of one call.
	Timeout       time.Duration `env:"KEB_SPC_TIMEOUT" envDefault:"30s"`
	RetryInterval time.Duration `env:"KEB_SPC_RETRY_INTERVAL" envDefault:"5s"`
}

// Validate names every field that cannot work.
func (c Config) Validate() error {
	err := extclient.CheckURL("KEB_SPC_URL", c.URL)
	if c.RetryInterval <= 0 {
		err = errors.Join(err, fmt.Errorf("KEB_SPC_RETRY_INTERVAL is %s: want more than 0", c.RetryInterval))
	}
	return err
}
