package eventhubs

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
)

// Name is the name of the worker and of its details.
const Name = "event-hubs"

const component = "azure"

// Details are the data that the worker saves about an instance.
type Details struct {
	// ResourceGroup is the group of the Event Hubs namespace.
	ResourceGroup string `json:"resourceGroup,omitempty"`
}

// Deps are the dependencies of the steps.
type Deps = extclient.Deps

type shared struct {
	cfg   Config
	azure *client
}

// Steps creates the steps of the worker.
func Steps(cfg Config, deps Deps) ([]worker.Step, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.URL == "" {
		without := setup.Without(component, "KEB_AZURE_URL", []worker.Step{provision{}, deprovision{}}, deps)
		return []worker.Step{natsStreaming{without[0]}, without[1]}, nil
	}
	c, err := newClient(cfg, deps)
	if err != nil {
		return nil, err
	}
	s := &shared{cfg: cfg, azure: c}
	return []worker.Step{provision{s}, deprovision{s}}, nil
}

// failed returns a retry for a temporary error, after the delay that Azure requests, and a failure for any other error. A conflict is
// temporary, because something is being created or deleted.
func (s *shared) failed(op worker.Operation, err error) (worker.Operation, time.Duration, error) {
	after := s.cfg.RetryInterval
	if refused, ok := errors.AsType[*extclient.StatusError](err); ok {
		after = cmp.Or(refused.RetryAfter, after)
	}
	if extclient.IsStatus(err, http.StatusConflict) {
		return outcome.Again(op, component, after, err)
	}
	return outcome.Of(op, component, after, err)
}
