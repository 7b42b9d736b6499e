package spc

import (
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
)

// Name is the name of the worker and of its details.
const Name = "spc"

const component = "spc"

// Details are the data that the worker saves about an instance.
type Details struct {
	// Operation is the last operation that SPC was notified of, and State the announced state: "1" under maintenance, "2" finished.
	Operation string `json:"operation,omitempty"`
	State     string `json:"state,omitempty"`
}

// Deps are the dependencies of the steps.
type Deps = extclient.Deps

type shared struct {
	cfg Config
	spc *client
	now func() time.Time
}

// time returns the current time in the format of SPC.
func (s *shared) time() string { return s.now().Local().Format(localTime) }

// Steps creates the steps of the worker.
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

// announced returns the state of op that was announced to SPC. An operation without an orchestration has no event.
func announced(op worker.Operation) (state string, err error) {
	if op.Upgrade == nil || op.Upgrade.OrchestrationID == "" {
		return "", fmt.Errorf("upgrade.orchestrationId is empty: only an upgrade by an orchestration can be announced")
	}
	var d Details
	if err := op.Details(Name, &d); err != nil || d.Operation != op.ID {
		return "", err
	}
	return d.State, nil
}
