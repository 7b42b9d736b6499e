package lifecyclemanager

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// initKymaTemplate reads the template of the Kyma resource before other steps create objects, so that an invalid template fails the
// operation early.
type initKymaTemplate struct{ *shared }

// Name implements worker.Step.
func (initKymaTemplate) Name() string { return "Init_Kyma_Template" }

// Describe implements worker.Described.
func (initKymaTemplate) Describe() worker.Description {
	return worker.Description{
		Summary: "Reads the template of the Kyma resource for the plan and the version of Kyma.",
		Calls:   []worker.Call{{System: system, Operation: "list configmaps"}},
		Details: []string{"kymaTemplate"},
	}
}

// Run implements worker.Step.
func (s initKymaTemplate) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	text, _, err := s.template(ctx, op, "")
	if err != nil {
		return outcome.Of(op, component, s.cfg.RetryInterval, err)
	}
	log.Debug("kyma template read")
	return op, 0, op.SaveDetails(Details{Template: text})
}
