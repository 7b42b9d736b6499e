// Command cmd runs the provisioner worker.
package main

import (
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

func main() { worker.Main(provisioner.Name, setup.Version(), setup.Steps(provisioner.Steps)) }
