package avs

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// saveDelay is the delay before the next execution changes a status. The orchestrator only has to save the status before.
const saveDelay = time.Millisecond

// setMaintenance prevents alerts of the evaluations during an upgrade, and saves their previous status.
// An execution that is killed after its calls saves nothing, and the next one finds
// MAINTENANCE, which is never saved. So one execution saves the status and the next one changes it. ACTIVE without a saved
// status needs no extra execution, because restoreStatus sets ACTIVE in that case.
func (s *shared) setMaintenance(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return op, 0, err
	}
	if len(d.evaluations()) == 0 {
		return worker.Skip(op, "the instance has no evaluations")
	}
	first := false
	op, after, err := s.forEachEvaluation(ctx, op, d, func(w watched, status string) error {
		if status == "" || status == statusMaintenance {
			return nil
		}
		if status != w.original {
			if err := op.SaveDetails(map[string]any{w.member: status}); err != nil {
				return err
			}
			if status != statusActive || w.original != "" {
				first = true
				return nil
			}
		}
		log.Info("put the evaluation into maintenance", "evaluation_id", w.id, "status", status)
		return s.avs.setStatus(ctx, w.id, statusMaintenance)
	})
	if err == nil && after == 0 && first {
		return worker.Wait(op, saveDelay, "the status of the evaluations is saved and will be changed")
	}
	return op, after, err
}
