// Package setup is for workers whose external system is optional.
package setup

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// Without returns the steps of a worker whose system has no URL; variable is the variable of the URL. Each step keeps its name, calls no
// system, and is skipped with a message that contains the system and the variable. Use it only for optional systems.
func Without(system, variable string, steps []worker.Step, deps extclient.Deps) []worker.Step {
	if deps.Log != nil {
		deps.Log.Warn("external system has no URL, its steps are skipped", "system", system, "variable", variable)
	}
	skip := func(_ context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
		return worker.Skip(op, fmt.Sprintf("%s has no URL (%s): skipped", system, variable))
	}
	skipped := make([]worker.Step, len(steps))
	for i, step := range steps {
		d, _ := worker.Describe(step)
		skipped[i] = worker.NewStep(step.Name(), system, skip, d)
	}
	return skipped
}
