// Command cmd runs the lifecycle-manager worker.
package main

import (
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
	"github.com/kyma-project/keb/services/step-workers/lifecyclemanager"
)

func main() { worker.Main(lifecyclemanager.Name, setup.Version(), setup.Steps(lifecyclemanager.Steps)) }
