package spc

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
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
		return worker.WithoutSystem(deps.Log, component, "KEB_SPC_URL", steps), nil
	}
	var err error
	s.spc, err = newClient(cfg, deps)
	return steps, err
}

// announce sends the state of op's instance to SPC, unless it was announced before. An operation without an orchestration has no event.
func (s *shared) announce(ctx context.Context, op worker.Operation, log *slog.Logger, t tenant) (worker.Operation, time.Duration, error) {
	if op.Upgrade == nil || op.Upgrade.OrchestrationID == "" {
		return worker.Fail(op, &worker.Error{Message: "upgrade.orchestrationId is empty: only an upgrade by an orchestration can be announced"})
	}
	announced := Details{Operation: op.ID, State: t.EventState}
	var d Details
	if err := op.Details(Name, &d); err != nil || d == announced {
		return op, 0, err
	}
	if err := s.spc.update(ctx, op.Upgrade.OrchestrationID, t); err != nil {
		return worker.Retry(op, s.cfg.RetryInterval, err)
	}
	log.Info("maintenance announced", "orchestration_id", op.Upgrade.OrchestrationID, "state", t.EventState)
	return op, 0, op.SaveDetails(announced)
}
