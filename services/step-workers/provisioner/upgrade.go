package provisioner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// Upgrade is an upgrade of the cluster that an operation of KEB started.
type Upgrade struct {
	// For is the id of KEB's operation. Other operations ignore the upgrade.
	For string `json:"for"`
	// After is the runtime's last operation before the upgrade.
	After string `json:"after"`
	// OperationID is the Runtime Provisioner's operation that upgrades the cluster; empty while it is unknown.
	OperationID string `json:"operationId,omitempty"`
}

// saveDelay is the delay between the two executions that start an upgrade. The orchestrator only has to save the first one.
const saveDelay = time.Millisecond

const noRuntime = "the instance has no runtime: it is suspended"

// upgrade starts the upgrade of the runtime, once. upgradeShoot has no idempotency key, and an execution that is killed after its call
// saves nothing. So the first execution saves the runtime's last operation, and the next one calls. A later UpgradeShoot was started by a
// killed execution, because the runtime and the instance each have one operation at a time.
func (s *shared) upgrade(ctx context.Context, op worker.Operation, d Details, input UpgradeInput, log *slog.Logger) (worker.Operation, time.Duration, error) {
	last, err := s.runtimes.LastOperation(ctx, op.Context.GlobalAccountID, d.RuntimeID)
	switch u := d.Upgrade; {
	case err != nil:
		return op, s.cfg.RetryInterval, err
	case u.startedBy(op, last):
		log.Info("found the upgrade of an earlier attempt", "runtime_id", d.RuntimeID)
		return u.save(op, last.ID)
	case last.Running():
		return worker.Wait(op, s.cfg.RetryInterval, otherFirst)
	case u.For != op.ID:
		u = Upgrade{For: op.ID, After: last.ID}
		if err := op.SaveDetails(Details{Upgrade: u}); err != nil {
			return op, 0, err
		}
		return worker.Wait(op, saveDelay, "the upgrade of the cluster is saved and will be started")
	}
	started, err := s.runtimes.UpgradeShoot(ctx, op.Context.GlobalAccountID, d.RuntimeID, input)
	if err == nil {
		log.Info("upgrade of the cluster started", "runtime_id", d.RuntimeID)
		return d.Upgrade.save(op, started.ID)
	}
	if extclient.IsTemporary(err) {
		return op, s.cfg.RetryInterval, err
	}
	// Another execution of this step, or another client, may have been faster.
	last, errLook := s.runtimes.LastOperation(ctx, op.Context.GlobalAccountID, d.RuntimeID)
	switch {
	case errLook == nil && d.Upgrade.startedBy(op, last):
		return d.Upgrade.save(op, last.ID)
	case errLook == nil && last.Running():
		return worker.Wait(op, s.cfg.RetryInterval, otherFirst)
	case op.Type == event.Update: // as the original's Upgrade_Shoot does after every error
		return worker.Retry(op, s.cfg.RetryInterval, err)
	}
	return op, 0, err
}

const otherFirst = "another operation of the runtime must end first"

// startedBy reports whether op started the runtime's last operation as an upgrade.
func (u Upgrade) startedBy(op worker.Operation, last OperationStatus) bool {
	return u.For == op.ID && last.ID != u.After && last.Operation == "UpgradeShoot"
}

func (u Upgrade) save(op worker.Operation, id string) (worker.Operation, time.Duration, error) {
	u.OperationID = id
	return op, 0, op.SaveDetails(Details{Upgrade: u})
}

// upgradeInput returns the input of op's update or upgrade.
func (s *shared) upgradeInput(op worker.Operation) (UpgradeInput, error) {
	p, err := readParameters(op)
	if err != nil {
		return UpgradeInput{}, err
	}
	switch op.Type {
	case event.Update:
		return updateInput(op, p)
	case event.UpgradeCluster:
		return clusterInput(s.cfg, op, p)
	}
	return UpgradeInput{}, fmt.Errorf("an operation of type %s does not upgrade the cluster", op.Type)
}

// checkUpgrade waits for the end of op's upgrade. It saves a failed upgrade, so that a retry of the operation from this stage starts a new
// one.
func (s *shared) checkUpgrade(ctx context.Context, op worker.Operation, d Details, log *slog.Logger) (worker.Operation, time.Duration, error) {
	u := d.Upgrade
	switch {
	case u.For != op.ID:
		return worker.Skip(op, "this operation started no upgrade of the cluster")
	case u.OperationID == "":
		return s.upgradeAgain(ctx, op, d, log)
	}
	status, err := s.runtimes.OperationStatus(ctx, op.Context.GlobalAccountID, u.OperationID, d.Kyma)
	if err != nil {
		return op, s.cfg.RetryInterval, err
	}
	if status.Running() {
		return worker.Wait(op, s.cfg.UpgradePollInterval, "the cluster is being upgraded")
	}
	if status.State == StateFailed {
		err = op.SaveDetails(Details{Upgrade: Upgrade{For: op.ID, After: u.OperationID}})
	}
	if err = errors.Join(err, status.err()); err != nil || op.Type != event.UpgradeCluster {
		return op, 0, err
	}
	input, err := s.upgradeInput(op)
	if err != nil {
		return worker.Fail(op, &worker.Error{Err: err})
	}
	return op, 0, op.SaveDetails(Details{KubernetesVersion: input.GardenerConfig.KubernetesVersion})
}

func (s *shared) upgradeAgain(ctx context.Context, op worker.Operation, d Details, log *slog.Logger) (worker.Operation, time.Duration, error) {
	input, err := s.upgradeInput(op)
	if err != nil {
		return worker.Fail(op, &worker.Error{Err: err})
	}
	op, after, err := s.upgrade(ctx, op, d, input, log)
	if after == 0 && err == nil {
		return worker.Wait(op, s.cfg.UpgradePollInterval, "the cluster is being upgraded")
	}
	return op, after, err
}
