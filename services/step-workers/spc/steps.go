package spc

import (
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
)

// Name is the name of the worker and of its part of the details.
const Name = "spc"

const component = "spc"

// Details is what the worker saves about an instance.
type Details struct {
	// Operation is the operation that has told SPC of the instance last, and State what it told: "1" under maintenance, "2"
	// finished.
	Operation string `json:"operation,omitempty"`
	State     string `json:"state,omitempty"`
}

// Deps is what the steps need besides the configuration.
type Deps = extclient.Deps

type shared struct {
	cfg Config
	spc *client
	now func() time.Time
}

// time returns the present time as SPC wants it.
func (s *shared) time() string { return s.now().Local().Format(localTime) }

// Steps builds the steps of the worker.
func Steps(cfg Config, deps Deps) ([]worker.Step, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &shared{cfg: cfg, now: deps.Now}
	if s.now == nil {
		s.now = time.Now
	}
	steps := []worker.Step{sendNotification{s}, sendFinishedNotification{s}}
	if cfg.URL == "" {
		return setup.Without(component, "KEB_SPC_URL", steps, deps), nil
	}
	c, err := newClient(cfg, deps)
	if err != nil {
		return nil, err
	}
	s.spc = c
	return steps, nil
}

// told is what op has told SPC already. Without an orchestration there is no event that it could tell of.
func told(op worker.Operation) (state string, err error) {
	if op.Upgrade == nil || op.Upgrade.OrchestrationID == "" {
		return "", fmt.Errorf("upgrade.orchestrationId is empty: only an upgrade of an orchestration is announced")
	}
	var d Details
	if err := op.Details(Name, &d); err != nil || d.Operation != op.ID {
		return "", err
	}
	return d.State, nil
}
