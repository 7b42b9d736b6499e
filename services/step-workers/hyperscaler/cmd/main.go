// Command cmd runs the hyperscaler worker.
package main

import (
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/hyperscaler"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
)

func main() { worker.Main(hyperscaler.Name, setup.Version(), setup.Steps(hyperscaler.Steps)) }
