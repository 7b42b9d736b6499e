package avs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// deprovisionEvaluations removes both evaluations. What goes wrong with one does not keep it from the other.
type deprovisionEvaluations struct{ *shared }

// Name implements worker.Step.
func (deprovisionEvaluations) Name() string { return "De-provision_AVS_Evaluations" }

// Describe implements worker.Described.
func (s deprovisionEvaluations) Describe() worker.Description {
	return worker.Description{
		Summary: "Removes the evaluations of the instance.",
		Calls:   s.removalCalls(),
		Details: []string{"internalId", "externalId", "formerInternalId", "formerExternalId", "tagged", "internalStatus", "externalStatus"},
	}
}

// Run implements worker.Step.
func (s deprovisionEvaluations) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	// However far this gets, an unsuspension must look whether an evaluation is still there.
	saved := map[string]any{"tagged": nil, "internalStatus": nil, "externalStatus": nil, "internalId": nil, "externalId": nil}
	formerInternal, formerExternal := cmp.Or(d.InternalID, d.FormerInternalID), cmp.Or(d.ExternalID, d.FormerExternalID)
	errInternal := s.remove(ctx, op, internal, formerInternal)
	saved[internal.former()] = remaining(formerInternal, errInternal)
	errExternal := s.remove(ctx, op, external, formerExternal)
	saved[external.former()] = remaining(formerExternal, errExternal)
	if err := op.SaveDetails(saved); err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	err = errors.Join(errInternal, errExternal)
	switch {
	case err == nil:
		log.Info("evaluations removed")
		return op, 0, nil
	case extclient.IsTemporary(errInternal), extclient.IsTemporary(errExternal), ctx.Err() != nil:
		return outcome.Again(op, component, s.cfg.CleanUpInterval, err)
	}
	return worker.Fail(op, outcome.Error(component, err))
}

// remaining is what is saved of an evaluation after its removal: nil, which clears it, unless it has an id and is left.
func remaining(id int64, err error) any {
	if err == nil || id == 0 {
		return nil
	}
	return id
}

// remove takes one evaluation away from its parent and deletes it. Without an id it looks for one that an attempt which died has
// left behind, if AvS has a look-up by name; otherwise such an evaluation remains (docs/operator.md).
func (s deprovisionEvaluations) remove(ctx context.Context, op worker.Operation, k kind, id int64) error {
	if k == external && id == 0 && small(op) {
		return nil
	}
	if id == 0 && !s.cfg.LookUp {
		return nil
	}
	if id == 0 {
		found, err := s.avs.find(ctx, k.name(op))
		if err != nil {
			return fmt.Errorf("look up the %s evaluation: %w", k, err)
		}
		if found == 0 {
			return nil
		}
		id = found
	}
	return s.removeByID(ctx, op, k, id)
}

// removeByID takes an evaluation away from its parent and deletes it.
func (s *shared) removeByID(ctx context.Context, op worker.Operation, k kind, id int64) error {
	if err := s.avs.detach(ctx, placeOf(k, s.cfg, op).ParentID, id); err != nil {
		return fmt.Errorf("remove the %s evaluation from its parent: %w", k, err)
	}
	if err := s.avs.remove(ctx, id); err != nil {
		return fmt.Errorf("delete the %s evaluation: %w", k, err)
	}
	return nil
}
