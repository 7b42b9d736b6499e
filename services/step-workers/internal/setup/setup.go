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

// Without returns the steps of a worker whose system has no URL, which the variable would set: each keeps its name, asks nothing
// and is skipped, and its message names the system and the variable. Use it for systems that an order can do without.
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

// without is a step whose system is not there.
type without struct {
	worker.Step

	message string
}

// Describe implements worker.Described: what the step is for stays the same.
func (s without) Describe() worker.Description {
	d, _ := worker.Describe(s.Step)
	return d
}

// Run implements worker.Step.
func (s without) Run(_ context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	return worker.Skip(op, s.message)
}
