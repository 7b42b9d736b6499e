package busola

import (
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// Name is the name of the worker.
const Name = "busola"

// Config is the configuration of the worker. It is empty, because the worker calls no system.
type Config struct{}

// Validate returns nil.
func (Config) Validate() error { return nil }

// Deps are the dependencies of the steps.
type Deps = extclient.Deps

// Steps creates the steps of the worker.
func Steps(Config, Deps) ([]worker.Step, error) { return []worker.Step{migratorOverrides{}}, nil }
