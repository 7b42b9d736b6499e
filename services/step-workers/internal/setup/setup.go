// Package setup is what the mains of the workers share.
package setup

import (
	"cmp"
	"runtime/debug"
	"strings"

	"github.com/caarlos0/env/v11"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/worker"
)

// FromEnv builds a worker's steps from the environment. Its error names every variable that is wrong.
func FromEnv[C any](steps func(C, extclient.Deps) ([]worker.Step, error), deps extclient.Deps) ([]worker.Step, error) {
	var cfg C
	if err := service.LoadEnv(&cfg); err != nil {
		return nil, err
	}
	return steps(cfg, deps)
}

// Defaults is a configuration as it is when the environment says nothing.
func Defaults[C any]() (C, error) {
	var cfg C
	// A map that is not nil keeps the library from reading the real environment.
	err := env.ParseWithOptions(&cfg, env.Options{Environment: map[string]string{}})
	return cfg, err
}

// Secret is a service credential: the content of its file, if one is named, else the value itself.
func Secret(value, fromFile string) string {
	return cmp.Or(strings.TrimSpace(fromFile), value)
}

// Version is the version of the module that was built into the binary, "devel" when it was built from a work tree.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
