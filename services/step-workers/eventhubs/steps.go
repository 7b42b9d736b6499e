package eventhubs

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// Name is the name of the worker and of its details.
const Name = "event-hubs"

const component = "azure"

// Details are the data that the worker saves about an instance.
type Details struct {
	// ResourceGroup is the group of the Event Hubs namespace.
	ResourceGroup string `json:"resourceGroup,omitempty"`
}

type shared struct {
	cfg   Config
	azure *client
}

// Steps creates the steps of the worker.
func Steps(cfg Config, deps extclient.Deps) ([]worker.Step, error) {
	s := &shared{cfg: cfg}
	steps := []worker.Step{
		worker.NewStep("Provision_Azure_Event_Hubs", component, orTrial(provisioner.UnlessOrdered(s.provision)), worker.Description{
			Summary: "Creates an Event Hubs namespace in its own resource group, and sets the overrides of the Kafka channels.",
			Calls: worker.Calls(component,
				"GET "+groupsRoute, "PUT "+groupRoute, "GET "+namespaceRoute, "PUT "+namespaceRoute, "POST "+keysRoute),
			Details:     []string{"resourceGroup"},
			StageMemory: []string{"overrides:" + ComponentEventing, "overrides:" + ComponentKafka, "overrides:" + ComponentNATSStreaming},
		}),
		worker.NewStep("Deprovision_Azure_Event_Hubs", component, s.deprovision, worker.Description{
			Summary: "Deletes the resource group of the instance's Event Hubs and waits until it is gone.",
			Calls:   worker.Calls(component, "GET "+groupsRoute, "DELETE "+groupRoute),
			Details: []string{"resourceGroup"},
		}),
	}
	if cfg.URL == "" {
		without := worker.WithoutSystem(deps.Log, component, "KEB_AZURE_URL", steps)
		d, _ := worker.Describe(steps[0])
		return []worker.Step{worker.NewStep(steps[0].Name(), component, orTrial(without[0].Run), d), without[1]}, nil
	}
	var err error
	s.azure, err = newClient(cfg, deps)
	return steps, err
}

// failed returns a retry for a temporary error, after the delay that Azure requests, and a failure for any other error. A conflict is
// temporary, because something is being created or deleted.
func (s *shared) failed(op worker.Operation, err error) (worker.Operation, time.Duration, error) {
	after := s.cfg.RetryInterval
	if refused, ok := errors.AsType[*extclient.StatusError](err); ok {
		after = cmp.Or(refused.RetryAfter, after)
	}
	if extclient.IsStatus(err, http.StatusConflict) {
		return worker.Retry(op, after, err)
	}
	return op, after, err
}
