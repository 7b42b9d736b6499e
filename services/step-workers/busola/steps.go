package busola

import (
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// Name is the name of the worker.
const Name = "busola"

// Config is the configuration of the worker, which calls no system.
type Config struct {
	// URL is the address of the dashboard, as in the broker's configuration; empty leaves it to the component.
	URL string `env:"KEB_LANDSCAPE_DASHBOARD_URL" envDefault:"https://dashboard.kyma.local"`
}

// Validate names every field that cannot work.
func (c Config) Validate() error {
	if c.URL == "" {
		return nil
	}
	return extclient.CheckURL("KEB_LANDSCAPE_DASHBOARD_URL", c.URL)
}

// Deps is what the steps need besides the configuration.
type Deps = extclient.Deps

// Steps builds the steps of the worker.
func Steps(cfg Config, _ Deps) ([]worker.Step, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return []worker.Step{migratorOverrides{cfg}}, nil
}
