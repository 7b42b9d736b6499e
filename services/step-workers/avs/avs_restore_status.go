package avs

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// restoreStatus ends the maintenance of the evaluations, whether or not the upgrade succeeded.
type restoreStatus struct{ *shared }

// Name implements worker.Step.
func (restoreStatus) Name() string { return "AVS_Restore_Status" }

// Describe implements worker.Described.
func (restoreStatus) Describe() worker.Description {
	return worker.Description{
		Summary: "Restores the status that the evaluations had before maintenance.",
		Calls:   statusCalls(),
		Details: []string{"internalStatus", "externalStatus"},
	}
}

// Run implements worker.Step. An evaluation in maintenance without a saved status becomes ACTIVE. The execution that changed the
// status was killed, and an evaluation that stays in maintenance would hide later outages.
func (s restoreStatus) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(component, err))
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
