package kyma

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// upgradeInitKymaVersion selects the target version of an upgrade of Kyma.
type upgradeInitKymaVersion struct{ decider }

// Name implements worker.Step.
func (upgradeInitKymaVersion) Name() string { return "Upgrade_Init_Kyma_Version" }

// Describe implements worker.Described.
func (upgradeInitKymaVersion) Describe() worker.Description {
	return describe("Selects the target version of Kyma and reads its components. The version is that of the orchestration, otherwise that of the account, otherwise the configured one.")
}

// Run implements worker.Step.
func (s upgradeInitKymaVersion) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if op.Upgrade != nil && op.Upgrade.KymaVersion != "" {
		version := op.Upgrade.KymaVersion
		return s.save(ctx, op, log, Details{Version: version, Origin: OriginParameters}, checkVersion("upgrade.kymaVersion", version))
	}
	decided, err := s.forAccount(ctx, op)
	return s.save(ctx, op, log, decided, err)
}
