// Command cmd runs the event-hubs worker.
package main

import (
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/eventhubs"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
)

func main() { worker.Main(eventhubs.Name, setup.Version(), setup.Steps(eventhubs.Steps)) }
