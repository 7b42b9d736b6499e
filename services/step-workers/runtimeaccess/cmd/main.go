// Command cmd runs the runtime worker.
package main

import (
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
	"github.com/kyma-project/keb/services/step-workers/runtimeaccess"
)

func main() {
	worker.Main(runtimeaccess.Name, setup.Version(), setup.Questions(runtimeaccess.Questions))
}
