package avs

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// Name is the name of the worker and of its part of the details.
const Name = "avs"

const component = "avs"

// Details is what the worker saves about an instance.
type Details struct {
	// InternalID and ExternalID are the ids of the evaluations; 0 means none.
	InternalID int64 `json:"internalId,omitempty"`
	ExternalID int64 `json:"externalId,omitempty"`
	// FormerInternalID and FormerExternalID are the ids of evaluations whose removal has begun.
	FormerInternalID int64 `json:"formerInternalId,omitempty"`
	FormerExternalID int64 `json:"formerExternalId,omitempty"`
	// Tagged tells that the internal evaluation has its tags.
	Tagged bool `json:"tagged,omitempty"`
	// InternalStatus and ExternalStatus are what the evaluations were before they were put into maintenance; empty when they
	// were not.
	InternalStatus string `json:"internalStatus,omitempty"`
	ExternalStatus string `json:"externalStatus,omitempty"`
}

// Deps is what the steps need besides the configuration.
type Deps = extclient.Deps

// runtimes tells where a runtime is.
type runtimes interface {
	RuntimeStatus(ctx context.Context, account, runtimeID string) (provisioner.RuntimeStatus, error)
}

type shared struct {
	cfg      Config
	avs      *client
	runtimes runtimes
}

// Steps builds the steps of the worker.
func Steps(cfg Config, deps Deps) ([]worker.Step, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c, err := newClient(cfg, deps)
	if err != nil {
		return nil, err
	}
	p, err := provisioner.NewClient(cfg.ClientConfig, deps)
	if err != nil {
		return nil, err
	}
	s := &shared{cfg: cfg, avs: c, runtimes: p}
	return []worker.Step{
		createInternalEval{s}, createExternalEval{s}, tags{s}, deprovisionEvaluations{s}, setMaintenance{s}, restoreStatus{s},
	}, nil
}

// ensure makes sure that the evaluation of a kind exists and saves its id under member.
func (s *shared) ensure(ctx context.Context, op worker.Operation, k kind, member string, log *slog.Logger) (worker.Operation, time.Duration, error) {
	id, err := s.avs.find(ctx, k.name(op))
	if err != nil {
		return outcome.Of(op, component, s.cfg.RetryInterval, fmt.Errorf("look up the evaluation: %w", err))
	}
	if id != 0 {
		log.Info("found the evaluation of an earlier attempt", "evaluation_id", id)
	} else if id, err = s.avs.create(ctx, k.definition(s.cfg, op)); err != nil {
		return outcome.Of(op, component, s.cfg.RetryInterval, fmt.Errorf("create the evaluation: %w", err))
	}
	return op, 0, op.SaveDetails(map[string]any{member: id})
}

func read(op worker.Operation) (Details, error) {
	var d Details
	return d, op.Details(Name, &d)
}
