// Command cmd runs the btp worker.
package main

import (
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/btp"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
)

func main() { worker.Main(btp.Name, setup.Version(), setup.Steps(btp.Steps)) }
