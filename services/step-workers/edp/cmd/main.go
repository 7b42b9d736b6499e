// Command cmd runs the edp worker.
package main

import (
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/edp"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
)

func main() { worker.Main(edp.Name, setup.Version(), setup.Steps(edp.Steps)) }
