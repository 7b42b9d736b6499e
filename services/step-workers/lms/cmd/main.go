// Command cmd runs the lms worker.
package main

import (
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
	"github.com/kyma-project/keb/services/step-workers/lms"
)

func main() { worker.Main(lms.Name, setup.Version(), setup.Steps(lms.Steps)) }
