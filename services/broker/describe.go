package broker

import (
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/broker/internal/removal"
)

// DescribeSteps says what the steps do that the broker executes, by name.
func DescribeSteps() map[string]worker.Description {
	return map[string]worker.Description{removal.StepName: removal.Describe()}
}
