package kyma

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// upgradeInitKymaVersion selects the target version of an upgrade of Kyma.
func (s decider) upgradeInitKymaVersion(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if op.Upgrade != nil && op.Upgrade.KymaVersion != "" {
		version := op.Upgrade.KymaVersion
		return s.save(ctx, op, log, Details{Version: version, Origin: OriginParameters}, checkVersion("upgrade.kymaVersion", version))
	}
	decided, err := s.forAccount(ctx, op)
	return s.save(ctx, op, log, decided, err)
}
