// Command cmd runs the kyma worker.
package main

import (
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
	"github.com/kyma-project/keb/services/step-workers/kyma"
)

func main() { worker.Main(kyma.Name, setup.Version(), setup.Steps(kyma.Steps)) }
