// Command cmd runs the busola worker.
package main

import (
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/busola"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
)

func main() { worker.Main(busola.Name, setup.Version(), setup.Steps(busola.Steps)) }
