package avs

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// setMaintenance keeps the evaluations from alarming anybody during an upgrade, and remembers how they were.
type setMaintenance struct{ *shared }

// soon is the time until a status that had to be saved first is changed: the orchestrator only has to save it.
const soon = time.Millisecond

// Name implements worker.Step.
func (setMaintenance) Name() string { return "AVS_Set_Maintenance" }

// Describe implements worker.Described.
func (setMaintenance) Describe() worker.Description {
	return worker.Description{
		Summary: "Puts the evaluations into maintenance and remembers the status that they had.",
		Calls:   statusCalls(),
		Details: []string{"internalStatus", "externalStatus"},
	}
}

// Run implements worker.Step. An execution that is killed after its calls has saved nothing, and the next one finds
// MAINTENANCE, which is never remembered. So the status is saved by one execution and changed by the next, unless it is
// ACTIVE and nothing was remembered: that is what is restored anyway.
func (s setMaintenance) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	if len(d.evaluations()) == 0 {
		return worker.Skip(op, "the instance has no evaluations")
	}
	first := false
	op, after, err := s.both(ctx, op, d, func(w watched, status string) error {
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
		log.Info("evaluation goes into maintenance", "evaluation_id", w.id, "status", status)
		return s.avs.setStatus(ctx, w.id, statusMaintenance)
	})
	if err == nil && after == 0 && first {
		return worker.Wait(op, soon, "the status of the evaluations is noted, and changes now")
	}
	return op, after, err
}
