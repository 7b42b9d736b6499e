// Command cmd runs the avs worker.
package main

import (
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/avs"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
)

func main() { worker.Main(avs.Name, setup.Version(), setup.Steps(avs.Steps)) }
