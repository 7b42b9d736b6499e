package avs

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// restoreStatus ends the maintenance of the evaluations, however the upgrade has ended.
type restoreStatus struct{ *shared }

// Name implements worker.Step.
func (restoreStatus) Name() string { return "AVS_Restore_Status" }

// Describe implements worker.Described.
func (restoreStatus) Describe() worker.Description {
	return worker.Description{
		Summary: "Gives the evaluations that are in maintenance the status back that they had before.",
		Calls:   statusCalls(),
		Details: []string{"internalStatus", "externalStatus"},
	}
}

// Run implements worker.Step. An evaluation that is in maintenance without a remembered status becomes ACTIVE: the
// execution that put it there was killed, and one that nobody ends would hide every outage to come.
func (s restoreStatus) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	if len(d.evaluations()) == 0 {
		return worker.Skip(op, "the instance has no evaluations")
	}
	return s.both(ctx, op, d, func(w watched, status string) error {
		if status == statusMaintenance {
			log.Info("maintenance of an evaluation ends", "evaluation_id", w.id, "status", w.restored())
			if err := s.avs.setStatus(ctx, w.id, w.restored()); err != nil {
				return err
			}
		}
		return op.SaveDetails(map[string]any{w.member: nil})
	})
}
