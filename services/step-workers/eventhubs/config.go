package eventhubs

import (
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
)

// Config is the configuration of the worker. The original takes the credentials of Azure from the account of the hyperscaler
// account pool; here one account is for all instances.
type Config struct {
	// URL is the address of the Azure Resource Manager, LoginURL that of the login.
	URL      string `env:"KEB_AZURE_URL" envDefault:"http://127.0.0.1:8090/azure"`
	LoginURL string `env:"KEB_AZURE_LOGIN_URL" envDefault:"http://127.0.0.1:8090/azure"`
	// Scope is what tokens are good for: that of the Resource Manager of the public cloud.
	Scope          string        `env:"KEB_AZURE_SCOPE" envDefault:"https://management.azure.com/.default"`
	TenantID       string        `env:"KEB_AZURE_TENANT_ID" envDefault:"keb"`
	SubscriptionID string        `env:"KEB_AZURE_SUBSCRIPTION_ID" envDefault:"keb"`
	ClientID       string        `env:"KEB_AZURE_CLIENT_ID" envDefault:"keb"`
	ClientSecret   string        `env:"KEB_AZURE_CLIENT_SECRET" envDefault:"keb"`
	Timeout        time.Duration `env:"KEB_AZURE_TIMEOUT" envDefault:"30s"`

	// Location is where the Event Hubs of runtimes are that do not run on Azure.
	Location string `env:"KEB_AZURE_LOCATION" envDefault:"westeurope"`
	// SKU, ThroughputUnits and MaxThroughputUnits are the size of a namespace, and how far it grows by itself.
	SKU                string `env:"KEB_AZURE_EVENT_HUBS_SKU" envDefault:"Standard"`
	ThroughputUnits    int    `env:"KEB_AZURE_EVENT_HUBS_THROUGHPUT_UNITS" envDefault:"1"`
	MaxThroughputUnits int    `env:"KEB_AZURE_EVENT_HUBS_MAX_THROUGHPUT_UNITS" envDefault:"4"`

	// RetryInterval follows an error, unless Azure asks for more; PollInterval is between two looks at something that is made
	// or deleted.
	RetryInterval time.Duration `env:"KEB_AZURE_RETRY_INTERVAL" envDefault:"1m"`
	PollInterval  time.Duration `env:"KEB_AZURE_POLL_INTERVAL" envDefault:"1m"`
}

// Validate names every field that cannot work.
func (c Config) Validate() error {
	errs := []error{extclient.CheckURL("KEB_AZURE_URL", c.URL), extclient.CheckURL("KEB_AZURE_LOGIN_URL", c.LoginURL)}
	for name, value := range map[string]string{
		"KEB_AZURE_TENANT_ID": c.TenantID, "KEB_AZURE_SUBSCRIPTION_ID": c.SubscriptionID, "KEB_AZURE_CLIENT_ID": c.ClientID,
		"KEB_AZURE_SCOPE": c.Scope, "KEB_AZURE_LOCATION": c.Location, "KEB_AZURE_EVENT_HUBS_SKU": c.SKU,
	} {
		if value == "" {
			errs = append(errs, fmt.Errorf("%s is empty", name))
		}
	}
	if c.ThroughputUnits < 1 || c.MaxThroughputUnits < c.ThroughputUnits {
		errs = append(errs, fmt.Errorf(
			"KEB_AZURE_EVENT_HUBS_THROUGHPUT_UNITS is %d and KEB_AZURE_EVENT_HUBS_MAX_THROUGHPUT_UNITS is %d: want at least 1, and no less at most",
			c.ThroughputUnits, c.MaxThroughputUnits))
	}
	for name, d := range map[string]time.Duration{"KEB_AZURE_RETRY_INTERVAL": c.RetryInterval, "KEB_AZURE_POLL_INTERVAL": c.PollInterval} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("%s is %s: want more than 0", name, d))
		}
	}
	return errors.Join(errs...)
}
