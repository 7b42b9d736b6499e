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
)

// deprovisionEvaluations removes both evaluations. An error of one does not prevent the removal of the other.
func (s *shared) deprovisionEvaluations(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return op, 0, err
	}
	// The former ids are saved even after an error: after an unsuspension, the worker checks for remaining evaluations.
	saved := map[string]any{"tagged": nil, "internalStatus": nil, "externalStatus": nil, "internalId": nil, "externalId": nil}
	formerInternal, formerExternal := cmp.Or(d.InternalID, d.FormerInternalID), cmp.Or(d.ExternalID, d.FormerExternalID)
	errInternal := s.remove(ctx, op, internal, formerInternal)
	saved[internal.former()] = remaining(formerInternal, errInternal)
	errExternal := s.remove(ctx, op, external, formerExternal)
	saved[external.former()] = remaining(formerExternal, errExternal)
	if err := op.SaveDetails(saved); err != nil {
		return op, 0, err
	}
	err = errors.Join(errInternal, errExternal)
	switch {
	case err == nil:
		log.Info("evaluations removed")
		return op, 0, nil
	case extclient.IsTemporary(errInternal), extclient.IsTemporary(errExternal), ctx.Err() != nil:
		return worker.Retry(op, s.cfg.RetryInterval, err)
	}
	return op, 0, err
}

// remaining returns the saved value of an evaluation after its removal: its id if the removal failed, otherwise nil, which clears it.
func remaining(id int64, err error) any {
	if err == nil || id == 0 {
		return nil
	}
	return id
}

// remove detaches one evaluation from its parent and deletes it. Without an id it searches for the evaluation of a killed attempt, if
// AvS has a look-up by name. Without the look-up, such an evaluation remains (docs/operator.md).
func (s *shared) remove(ctx context.Context, op worker.Operation, k kind, id int64) error {
	if k == external && id == 0 && isSmallPlan(op) {
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

// removeByID detaches an evaluation from its parent and deletes it.
func (s *shared) removeByID(ctx context.Context, op worker.Operation, k kind, id int64) error {
	if err := s.avs.detach(ctx, placeOf(k, s.cfg, op).ParentID, id); err != nil {
		return fmt.Errorf("remove the %s evaluation from its parent: %w", k, err)
	}
	existed, err := s.avs.remove(ctx, id)
	if err != nil {
		return fmt.Errorf("delete the %s evaluation: %w", k, err)
	}
	if existed {
		op.NoteRemoved(fmt.Sprintf("evaluation %d", id))
	}
	return nil
}
