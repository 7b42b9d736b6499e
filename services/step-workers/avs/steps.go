package avs

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
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

// Deps are the dependencies of the steps.
type Deps = extclient.Deps

// runtimes returns the location of a runtime.
type runtimes interface {
	RuntimeStatus(ctx context.Context, account, runtimeID string) (provisioner.RuntimeStatus, error)
}

type shared struct {
	cfg      Config
	avs      *client
	runtimes runtimes
}

// Steps creates the steps of the worker.
func Steps(cfg Config, deps Deps) ([]worker.Step, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &shared{cfg: cfg}
	steps := []worker.Step{
		createInternalEval{s}, createExternalEval{s}, tags{s}, deprovisionEvaluations{s}, setMaintenance{s}, restoreStatus{s},
	}
	if cfg.URL == "" {
		return setup.Without(component, "KEB_AVS_URL", steps, deps), nil
	}
	c, err := newClient(cfg, deps)
	if err != nil {
		return nil, err
	}
	p, err := provisioner.NewClient(cfg.ClientConfig, deps)
	if err != nil {
		return nil, err
	}
	s.avs, s.runtimes = c, p
	return steps, nil
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
			return outcome.Of(op, component, s.cfg.RetryInterval, fmt.Errorf("look up the evaluation: %w", err))
		}
	}
	if id != 0 {
		log.Info("found the evaluation of an earlier attempt", "evaluation_id", id)
		return op, 0, op.SaveDetails(map[string]any{member: id, k.former(): nil})
	}
	if former != 0 {
		if err := s.removeByID(ctx, op, k, former); err != nil {
			return outcome.Of(op, component, s.cfg.RetryInterval, fmt.Errorf("complete an earlier removal: %w", err))
		}
	}
	id, err := s.avs.create(ctx, k.definition(s.cfg, op))
	if err != nil {
		// AvS may have created the evaluation, although the answer is missing.
		if extclient.IsTemporary(err) {
			log.Warn("the creation of the evaluation failed, but the evaluation may exist as an orphan", "evaluation_name", k.name(op), "err", err)
		}
		return outcome.Of(op, component, s.cfg.RetryInterval, fmt.Errorf("create the evaluation: %w", err))
	}
	log.Info("evaluation created", "evaluation_id", id, "evaluation_name", k.name(op))
	return op, 0, op.SaveDetails(map[string]any{member: id, k.former(): nil})
}

// creationCalls returns the calls of ensure.
func (s *shared) creationCalls() []worker.Call {
	return append(s.removalCalls(), worker.Call{System: component, Operation: "POST"})
}

// removalCalls returns the calls that remove an evaluation.
func (s *shared) removalCalls() []worker.Call {
	return append(s.lookUp(),
		worker.Call{System: component, Operation: "DELETE /{parent}/child/{id}"}, worker.Call{System: component, Operation: "DELETE /{id}"})
}

// lookUp returns the call that finds an evaluation by its name, if it is enabled.
func (s *shared) lookUp() []worker.Call {
	if !s.cfg.LookUp {
		return nil
	}
	return []worker.Call{{System: component, Operation: "GET"}}
}

func read(op worker.Operation) (Details, error) {
	var d Details
	return d, op.Details(Name, &d)
}
