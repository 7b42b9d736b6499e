// Command cmd runs the hyperscaler worker.
package main

import (
	"context"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/hyperscaler"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
)

func main() {
	worker.Main(hyperscaler.Name, setup.Version(), func(ctx context.Context, env worker.Env) ([]worker.Step, error) {
		if _, err := setup.Questions(hyperscaler.Questions)(ctx, env); err != nil {
			return nil, err
		}
		return setup.Steps(hyperscaler.Steps)(ctx, env)
	})
}
