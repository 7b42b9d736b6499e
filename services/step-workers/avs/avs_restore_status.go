package avs

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// restoreStatus ends the maintenance of the evaluations, whether or not the upgrade succeeded.
// An evaluation in maintenance without a saved status becomes ACTIVE. The execution that changed the
// status was killed, and an evaluation that stays in maintenance would hide later outages.
func (s *shared) restoreStatus(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return op, 0, err
	}
	if len(d.evaluations()) == 0 {
		return worker.Skip(op, "the instance has no evaluations")
	}
	return s.forEachEvaluation(ctx, op, d, func(w watched, status string) error {
		if status == statusMaintenance {
			log.Info("end the maintenance of an evaluation", "evaluation_id", w.id, "status", w.restored())
			if err := s.avs.setStatus(ctx, w.id, w.restored()); err != nil {
				return err
			}
		}
		return op.SaveDetails(map[string]any{w.member: nil})
	})
}
