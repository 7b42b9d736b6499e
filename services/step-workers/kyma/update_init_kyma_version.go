package kyma

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// updateInitKymaVersion finds the runtime's version of Kyma, which an update does not change.
type updateInitKymaVersion struct{ decider }

// Name implements worker.Step.
func (updateInitKymaVersion) Name() string { return "Update_Init_Kyma_Version" }

// Describe implements worker.Described.
func (updateInitKymaVersion) Describe() worker.Description {
	return describe("Finds the runtime's version of Kyma, which an update does not change, and reads its components.")
}

// Run implements worker.Step.
func (s updateInitKymaVersion) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	var saved Details
	// The package reconciler reads the details of this package, so it cannot be imported here.
	var applied struct {
		KymaVersion string `json:"kymaVersion"`
	}
	if err := errors.Join(op.Details(Name, &saved), op.Details("reconciler", &applied)); err != nil {
		return worker.Fail(op, outcome.Error("keb", err))
	}
	if version := cmp.Or(applied.KymaVersion, saved.Version); version != "" {
		// It differs from the saved version if the last upgrade did not reach the runtime, or was a dry run.
		return s.save(ctx, op, log, Details{Version: version, Origin: cmp.Or(saved.Origin, OriginDefaults)}, nil)
	}
	decided, err := s.forOrder(ctx, op)
	return s.save(ctx, op, log, decided, err)
}
