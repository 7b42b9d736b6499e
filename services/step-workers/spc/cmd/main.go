// Command cmd runs the spc worker.
package main

import (
	"context"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
	"github.com/kyma-project/keb/services/step-workers/spc"
)

func main() {
	worker.Main(spc.Name, setup.Version(), func(ctx context.Context, env worker.Env) ([]worker.Step, error) {
		if _, err := setup.Questions(spc.Questions)(ctx, env); err != nil {
			return nil, err
		}
		return setup.Steps(spc.Steps)(ctx, env)
	})
}
