// Command cmd runs the service-manager worker.
package main

import (
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
	"github.com/kyma-project/keb/services/step-workers/servicemanager"
)

func main() { worker.Main(servicemanager.Name, setup.Version(), setup.Steps(servicemanager.Steps)) }
