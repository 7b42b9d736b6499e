// Package setup is what the mains of the workers share.
package setup

import (
	"context"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/worker"
)

// Steps makes what worker.Main asks for: it builds a worker's steps from the environment, and lets the calls of their clients
// be logged and counted. Its error names every variable that is wrong.
func Steps[C any](steps func(C, extclient.Deps) ([]worker.Step, error)) func(context.Context, worker.Env) ([]worker.Step, error) {
	return func(_ context.Context, env worker.Env) ([]worker.Step, error) {
		var cfg C
		if err := service.LoadEnv(&cfg); err != nil {
			return nil, err
		}
		return steps(cfg, extclient.Deps{Log: env.Log, Registerer: env.Registerer})
	}
}

// Questions is Steps for a worker that has no steps and only answers questions.
func Questions[C any](
	questions func(C, extclient.Deps) ([]worker.Question, error),
) func(context.Context, worker.Env) ([]worker.Step, error) {
	return func(_ context.Context, env worker.Env) ([]worker.Step, error) {
		var cfg C
		if err := service.LoadEnv(&cfg); err != nil {
			return nil, err
		}
		answered, err := questions(cfg, extclient.Deps{Log: env.Log, Registerer: env.Registerer})
		env.Answer(answered...)
		return nil, err
	}
}

// Version is the version of the worker, see service.Version.
func Version() string { return service.Version() }
