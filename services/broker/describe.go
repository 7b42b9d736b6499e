package broker

import (
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/broker/internal/removal"
)

// DescribeSteps describes the steps that the broker executes, by name.
func DescribeSteps() map[string]worker.Description {
	return map[string]worker.Description{removal.StepName: removal.Describe()}
}
