// Command cmd runs the reconciler worker.
package main

import (
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
	"github.com/kyma-project/keb/services/step-workers/reconciler"
)

func main() { worker.Main(reconciler.Name, setup.Version(), setup.Steps(reconciler.Steps)) }
