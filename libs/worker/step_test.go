package worker_test

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

type runFunc func(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error)

// stepFunc is a step made of a name and a function.
type stepFunc struct {
	name string
	run  runFunc
}

func (s stepFunc) Name() string { return s.name }

func (s stepFunc) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	return s.run(ctx, op, log)
}

func step(run func(ctx context.Context, op worker.Operation) (worker.Operation, time.Duration, error)) worker.Step {
	return stepFunc{name: "Test_Step", run: func(ctx context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
		return run(ctx, op)
	}}
}

func plain(run func(ctx context.Context, op worker.Operation) (worker.Operation, time.Duration, error)) runFunc {
	return func(ctx context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
		return run(ctx, op)
	}
}
