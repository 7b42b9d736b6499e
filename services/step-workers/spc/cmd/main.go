// Command cmd runs the spc worker.
package main

import (
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
	"github.com/kyma-project/keb/services/step-workers/spc"
)

func main() { worker.Main(spc.Name, setup.Version(), setup.Steps(spc.Steps)) }
