package servicemanager

import (
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/service"
)

// Mode decides when the configured credentials replace those of the order.
type Mode string

// Modes of docs/contracts/btp.md#service-manager-of-kyma-1.
const (
	Always               Mode = "Always"
	WhenNotSentInRequest Mode = "WhenNotSentInRequest"
	Never                Mode = "Never"
)

// Config is the configuration of the worker.
type Config struct {
	// Mode decides when the configured credentials replace the sm_platform_credentials of the order: Always, WhenNotSentInRequest or
	// Never.
	Mode Mode `env:"KEB_SERVICE_MANAGER_OVERRIDE_MODE" envDefault:"Never"`
	// URL, Username and Password are the configured credentials. They are required unless the mode is Never.
	URL      string `env:"KEB_SERVICE_MANAGER_URL"`
	Username string `env:"KEB_SERVICE_MANAGER_USERNAME"`
	Password string `env:"KEB_SERVICE_MANAGER_PASSWORD"`
	// RetryInterval is the delay after a broker that does not respond.
	RetryInterval time.Duration `env:"KEB_PACE" envDefault:"10s"`
}

// Validate reports every invalid field.
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
	errs = append(errs, service.Positive("KEB_PACE", c.RetryInterval))
	return errors.Join(errs...)
}
