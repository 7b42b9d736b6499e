package servicemanager

import (
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
)

// Mode says when the configured credentials are used in place of those of the order.
type Mode string

// Modes of docs/contracts/processes.md#kyma-1.
const (
	Always               Mode = "Always"
	WhenNotSentInRequest Mode = "WhenNotSentInRequest"
	Never                Mode = "Never"
)

// Config is the configuration of the worker.
type Config struct {
	// Mode says when the configured credentials are used in place of the sm_platform_credentials of the order: Always,
	// WhenNotSentInRequest or Never.
	Mode Mode `env:"KEB_SERVICE_MANAGER_OVERRIDE_MODE" envDefault:"Never"`
	// URL, Username and Password are the configured credentials; unless the mode is Never they must be there.
	URL      string `env:"KEB_SERVICE_MANAGER_URL"`
	Username string `env:"KEB_SERVICE_MANAGER_USERNAME"`
	Password string `env:"KEB_SERVICE_MANAGER_PASSWORD"`
	// RetryInterval follows a broker that does not answer.
	RetryInterval time.Duration `env:"KEB_SERVICE_MANAGER_RETRY_INTERVAL" envDefault:"10s"`
}

// Validate names every field that cannot work.
func (c Config) Validate() error {
	var errs []error
	switch c.Mode {
	case Always, WhenNotSentInRequest:
		errs = append(errs, extclient.CheckURL("KEB_SERVICE_MANAGER_URL", c.URL))
		if c.Username == "" || c.Password == "" {
			errs = append(errs, fmt.Errorf(
				"KEB_SERVICE_MANAGER_USERNAME and KEB_SERVICE_MANAGER_PASSWORD must not be empty with the mode %s", c.Mode))
		}
	case Never:
	default:
		errs = append(errs, fmt.Errorf("KEB_SERVICE_MANAGER_OVERRIDE_MODE is %q: want %s, %s or %s", c.Mode, Always, WhenNotSentInRequest, Never))
	}
	if c.RetryInterval <= 0 {
		errs = append(errs, fmt.Errorf("KEB_SERVICE_MANAGER_RETRY_INTERVAL is %s: want more than 0", c.RetryInterval))
	}
	return errors.Join(errs...)
}
