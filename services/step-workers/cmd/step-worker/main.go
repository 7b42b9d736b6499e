// Command step-worker runs the workers in its arguments, for example step-worker avs, or step-worker avs edp.
package main

import (
	"github.com/kyma-project/keb/libs/worker"
	stepworkers "github.com/kyma-project/keb/services/step-workers"
)

func main() { worker.MainOf("step-worker", stepworkers.Programs()...) }
