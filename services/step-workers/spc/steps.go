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

type shared struct {
	cfg Config
	spc *client
	now func() time.Time
}

// time returns the current time in the format of SPC.
func (s *shared) time() string { return s.now().Local().Format(localTime) }

// Steps creates the steps of the worker.
func Steps(cfg Config, deps extclient.Deps) ([]worker.Step, error) {
	s := &shared{cfg: cfg, now: deps.Clock()}
	steps := []worker.Step{
		worker.NewStep("Send_Notification", component, s.sendNotification, worker.Description{
			Summary: "Notifies the customer through SPC of the begin of the instance's maintenance.",
			Calls:   worker.Calls(component, "PATCH "+updateRoute),
			Details: []string{"operation", "state"},
		}),
		worker.NewStep("Send_Finished_Notification", component, s.sendFinishedNotification, worker.Description{
			Summary: "Notifies the customer through SPC of the end of the instance's maintenance.",
			Calls:   worker.Calls(component, "PATCH "+updateRoute),
			Details: []string{"operation", "state"},
		}),
	}
	if cfg.URL == "" {
		return setup.Without(component, "KEB_SPC_URL", steps, deps), nil
	}
	var err error
	s.spc, err = newClient(cfg, deps)
	return steps, err
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
