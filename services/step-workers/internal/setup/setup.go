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
	skipped := make([]worker.Step, len(steps))
	for i, step := range steps {
		skipped[i] = without{Step: step, message: fmt.Sprintf("%s has no URL (%s): skipped", system, variable)}
	}
	return skipped
}

// without is a step of a system without a URL.
type without struct {
	worker.Step

	message string
}

// Describe implements worker.Described. The description does not change.
func (s without) Describe() worker.Description {
	d, _ := worker.Describe(s.Step)
	return d
}

// Run implements worker.Step.
func (s without) Run(_ context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	return worker.Skip(op, s.message)
}
