package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// WithoutSystem returns the steps of a worker whose optional system has no URL; variable is the variable of the URL. Each step keeps its name
// and description, calls no system, and is skipped with a message that contains the system and the variable. A nil log logs nothing.
func WithoutSystem(log *slog.Logger, system, variable string, steps []Step) []Step {
	if log != nil {
		log.Warn("external system has no URL, its steps are skipped", "system", system, "variable", variable)
	}
	skip := func(_ context.Context, op Operation, _ *slog.Logger) (Operation, time.Duration, error) {
		return Skip(op, fmt.Sprintf("%s has no URL (%s): skipped", system, variable))
	}
	skipped := make([]Step, len(steps))
	for i, step := range steps {
		d, _ := Describe(step)
		skipped[i] = NewStep(step.Name(), system, skip, d)
	}
	return skipped
}
