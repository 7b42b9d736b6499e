package busola

import (
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// Name is the name of the worker.
const Name = "busola"

// Config is the configuration of the worker, which calls no system and has no settings.
type Config struct{}

// Validate implements what every configuration has.
func (Config) Validate() error { return nil }

// Deps is what the steps need besides the configuration.
type Deps = extclient.Deps

// Steps builds the steps of the worker.
func Steps(Config, Deps) ([]worker.Step, error) { return []worker.Step{migratorOverrides{}}, nil }
