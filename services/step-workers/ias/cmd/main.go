// Command cmd runs the ias worker.
package main

import (
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/ias"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
)

func main() { worker.Main(ias.Name, setup.Version(), setup.Steps(ias.Steps)) }
