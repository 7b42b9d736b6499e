package reconciler

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

// checkClusterConfiguration waits until the runtime has the applied configuration.
func (s *shared) checkClusterConfiguration(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return op, 0, err
	}
	applied := d.ConfigurationVersion != 0 && (op.Type == event.Provision || d.appliedBy(op))
	if applied && s.now().Sub(op.FirstTriedAt) >= s.cfg.CheckTimeout {
		return s.giveUp(ctx, op, d, log)
	}
	doing := "Kyma is being installed"
	if op.Type == event.UpgradeKyma {
		doing = "Kyma is being upgraded"
	}
	return s.check(ctx, op, d, doing)
}

// giveUpTimeout is the timeout of the deregistration after the step gave up.
const giveUpTimeout = 30 * time.Second

// giveUp fails the step. The Reconciler never gives up, so giveUp deregisters a new cluster and forgets its version. A cluster whose
// upgrade failed stays registered, because the Reconciler maintains its Kyma.
func (s *shared) giveUp(ctx context.Context, op worker.Operation, d Details, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if op.Type == event.Provision {
		_, _, err := s.reconciler.delete(ctx, d.RuntimeID)
		switch {
		case err != nil && s.now().Sub(op.FirstTriedAt) < s.cfg.CheckTimeout+giveUpTimeout:
			return worker.Retry(op, s.cfg.RetryInterval, fmt.Errorf("deregister the cluster: %w", err))
		case err != nil:
			log.Warn("the cluster stays registered with the reconciler", "runtime_id", d.RuntimeID, "err", err)
		default:
			// A retry of the operation must send the configuration again.
			err := op.SaveDetails(map[string]any{"clusterConfigurationVersion": nil, "clusterVersion": nil, "appliedBy": nil})
			if err != nil {
				return op, 0, err
			}
		}
	}
	return worker.Fail(op, &worker.Error{
		Component: system, Reason: worker.ReasonTimeout,
		Message: fmt.Sprintf("the runtime was not ready within %s", s.cfg.CheckTimeout),
	})
}
