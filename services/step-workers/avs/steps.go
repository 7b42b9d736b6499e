package avs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// Name is the name of the worker and of its details.
const Name = "avs"

const component = "avs"

// Details are the data that the worker saves about an instance.
type Details struct {
	// InternalID and ExternalID are the ids of the evaluations; 0 means none.
	InternalID int64 `json:"internalId,omitempty"`
	ExternalID int64 `json:"externalId,omitempty"`
	// FormerInternalID and FormerExternalID are the ids of evaluations whose removal has begun.
	FormerInternalID int64 `json:"formerInternalId,omitempty"`
	FormerExternalID int64 `json:"formerExternalId,omitempty"`
	// Tagged is true after the internal evaluation got its tags.
	Tagged bool `json:"tagged,omitempty"`
	// InternalStatus and ExternalStatus are the statuses before maintenance; empty outside of maintenance.
	InternalStatus string `json:"internalStatus,omitempty"`
	ExternalStatus string `json:"externalStatus,omitempty"`
}

type shared struct {
	cfg      Config
	avs      *client
	runtimes *provisioner.Client
}

// Steps creates the steps of the worker.
func Steps(cfg Config, deps extclient.Deps) ([]worker.Step, error) {
	s := &shared{cfg: cfg}
	steps := []worker.Step{
		worker.NewStep("AVS_Create_Internal_Eval_Step", component, s.createInternalEval, worker.Description{
			Summary: "Creates the evaluation that the instance itself reports to.",
			Calls:   s.creationCalls(),
			Details: []string{"internalId", "formerInternalId"},
		}),
		worker.NewStep("AVS_Create_External_Eval_Step", component, s.createExternalEval, worker.Description{
			Summary: "Creates the evaluation that checks the public address of the instance.",
			Calls:   s.creationCalls(),
			Details: []string{"externalId", "formerExternalId"},
		}),
		worker.NewStep("AVS_Tags", component, s.tags, worker.Description{
			Summary: "Adds tags with the location of the cluster to the internal evaluation.",
			Calls:   append(worker.Calls("provisioner", "runtimeStatus"), worker.Calls(component, "POST /{id}/tag")...),
			Details: []string{"internalId", "tagged"},
		}),
		worker.NewStep("De-provision_AVS_Evaluations", component, s.deprovisionEvaluations, worker.Description{
			Summary: "Removes the evaluations of the instance.",
			Calls:   s.removalCalls(),
			Details: []string{"internalId", "externalId", "formerInternalId", "formerExternalId", "tagged", "internalStatus", "externalStatus"},
		}),
		worker.NewStep("AVS_Set_Maintenance", component, s.setMaintenance, worker.Description{
			Summary: "Puts the evaluations into maintenance and saves their previous status.",
			Calls:   worker.Calls(component, "GET /{id}", "PUT /{id}/lifecycle"),
			Details: []string{"internalStatus", "externalStatus"},
		}),
		worker.NewStep("AVS_Restore_Status", component, s.restoreStatus, worker.Description{
			Summary: "Restores the status that the evaluations had before maintenance.",
			Calls:   worker.Calls(component, "GET /{id}", "PUT /{id}/lifecycle"),
			Details: []string{"internalStatus", "externalStatus"},
		}),
	}
	if cfg.URL == "" {
		return worker.WithoutSystem(deps.Log, component, "KEB_AVS_URL", steps), nil
	}
	var err, errRuntimes error
	s.avs, err = newClient(cfg, deps)
	s.runtimes, errRuntimes = provisioner.NewClient(cfg.ClientConfig, deps)
	return steps, errors.Join(err, errRuntimes)
}

// ensure creates the evaluation of a kind and saves its id under member. AvS has no look-up by name: after a lost answer, or if the
// worker is killed before it saves the id, the next attempt creates a second evaluation, and the first one remains as an orphan.
// With Config.LookUp, ensure uses the first one. former is the id of an evaluation whose removal was given up. ensure completes
// that removal first, so that the instance has one evaluation of a kind.
func (s *shared) ensure(ctx context.Context, op worker.Operation, k kind, member string, former int64, log *slog.Logger) (worker.Operation, time.Duration, error) {
	var id int64
	if s.cfg.LookUp {
		var err error
		if id, err = s.avs.find(ctx, k.name(op)); err != nil {
			return op, s.cfg.RetryInterval, fmt.Errorf("look up the evaluation: %w", err)
		}
	}
	if id != 0 {
		log.Info("found the evaluation of an earlier attempt", "evaluation_id", id)
		return op, 0, op.SaveDetails(map[string]any{member: id, k.former(): nil})
	}
	if former != 0 {
		if err := s.removeByID(ctx, op, k, former); err != nil {
			return op, s.cfg.RetryInterval, fmt.Errorf("complete an earlier removal: %w", err)
		}
	}
	id, err := s.avs.create(ctx, k.definition(s.cfg, op))
	if err != nil {
		// AvS may have created the evaluation, although the answer is missing.
		if extclient.IsTemporary(err) {
			log.Warn("the creation of the evaluation failed, but the evaluation may exist as an orphan", "evaluation_name", k.name(op), "err", err)
		}
		return op, s.cfg.RetryInterval, fmt.Errorf("create the evaluation: %w", err)
	}
	log.Info("evaluation created", "evaluation_id", id, "evaluation_name", k.name(op))
	return op, 0, op.SaveDetails(map[string]any{member: id, k.former(): nil})
}

// creationCalls returns the calls of ensure.
func (s *shared) creationCalls() []worker.Call {
	return append(s.removalCalls(), worker.Calls(component, "POST")...)
}

// removalCalls returns the calls that remove an evaluation.
func (s *shared) removalCalls() []worker.Call {
	calls := worker.Calls(component, "DELETE /{parent}/child/{id}", "DELETE /{id}")
	if s.cfg.LookUp {
		return append(worker.Calls(component, "GET"), calls...)
	}
	return calls
}

func read(op worker.Operation) (Details, error) {
	var d Details
	return d, op.Details(Name, &d)
}
