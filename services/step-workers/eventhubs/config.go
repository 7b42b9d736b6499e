package eventhubs

import (
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/service"
)

// Config is the configuration of the worker. All instances share one Azure account. The original broker takes the account from the
// hyperscaler account pool.
type Config struct {
	// URL is the address of the Azure Resource Manager, LoginURL that of the login. Without URL the worker does not call Azure and skips
	// its steps.
	URL            string        `env:"KEB_AZURE_URL"`
	LoginURL       string        `env:"KEB_AZURE_LOGIN_URL"`
	TenantID       string        `env:"KEB_AZURE_TENANT_ID" envDefault:"keb"`
	SubscriptionID string        `env:"KEB_AZURE_SUBSCRIPTION_ID" envDefault:"keb"`
	ClientID       string        `env:"KEB_AZURE_CLIENT_ID" envDefault:"keb"`
	ClientSecret   string        `env:"KEB_AZURE_CLIENT_SECRET" envDefault:"keb"`
	Timeout        time.Duration `env:"KEB_AZURE_TIMEOUT" envDefault:"30s"`

	// Location is the Azure region of Event Hubs for runtimes without an Azure region: those outside Azure without a nearby one.
	Location string `env:"KEB_AZURE_LOCATION" envDefault:"westeurope"`

	// RetryInterval is the delay after an error, unless Azure requests a longer one. PollInterval is the interval between two checks of a
	// creation or deletion.
	RetryInterval time.Duration `env:"KEB_PACE" envDefault:"1m"`
	PollInterval  time.Duration `env:"KEB_PACE" envDefault:"1m"`
}

// Validate reports every invalid setting. Without a URL, all settings are valid.
func (c Config) Validate() error {
	if c.URL == "" {
		return nil
	}
	errs := []error{extclient.CheckURL("KEB_AZURE_URL", c.URL), extclient.CheckURL("KEB_AZURE_LOGIN_URL", c.LoginURL)}
	for _, text := range []struct{ variable, value string }{
		{"KEB_AZURE_TENANT_ID", c.TenantID},
		{"KEB_AZURE_SUBSCRIPTION_ID", c.SubscriptionID},
		{"KEB_AZURE_CLIENT_ID", c.ClientID},
		{"KEB_AZURE_LOCATION", c.Location},
	} {
		if text.value == "" {
			errs = append(errs, fmt.Errorf("%s is empty", text.variable))
		}
	}
	errs = append(errs, service.Positive("KEB_PACE", min(c.RetryInterval, c.PollInterval)))
	return errors.Join(errs...)
}
