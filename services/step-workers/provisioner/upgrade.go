package provisioner

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// Upgrade is an upgrade of the cluster that an operation of KEB started.
type Upgrade struct {
	// For is the id of KEB's operation. To any other operation it says nothing.
	For string `json:"for"`
	// After is the Runtime Provisioner's operation that was the runtime's last one before.
	After string `json:"after"`
	// OperationID is the Runtime Provisioner's operation that upgrades the cluster; empty as long as none is known.
	OperationID string `json:"operationId,omitempty"`
}

// soon is the time between the two halves of the start of an upgrade: the orchestrator only has to save the first one.
const soon = time.Millisecond

const noRuntime = "the instance has no runtime: it is suspended"

// upgrade starts the upgrade of the runtime, once. upgradeShoot has no key by which a repeated call could be told from a
// new one, and an execution that is killed after its call has saved nothing. So the first execution saves which operation
// was the runtime's last one, and the next one calls: an UpgradeShoot that came after the saved one is that of an
// execution that was killed, as the runtime has one operation at a time and the instance too.
func (s *shared) upgrade(ctx context.Context, op worker.Operation, d Details, input UpgradeInput, log *slog.Logger) (worker.Operation, time.Duration, error) {
	last, err := s.runtimes.LastOperation(ctx, op.Context.GlobalAccountID, d.RuntimeID)
	switch u := d.Upgrade; {
	case err != nil:
		return outcome.Of(op, component, s.cfg.RetryInterval, err)
	case u.startedBy(op, last):
		log.Info("found the upgrade of an earlier attempt", "runtime_id", d.RuntimeID)
		return u.save(op, last.ID)
	case last.Running():
		return worker.Wait(op, s.cfg.RetryInterval, otherFirst)
	case u.For != op.ID:
		u = Upgrade{For: op.ID, After: last.ID}
		if err := op.SaveDetails(Details{Upgrade: u}); err != nil {
			return worker.Fail(op, outcome.Error(component, err))
		}
		return worker.Wait(op, soon, "the upgrade of the cluster is noted, and starts now")
	}
	started, err := s.runtimes.UpgradeShoot(ctx, op.Context.GlobalAccountID, d.RuntimeID, input)
	if err == nil {
		log.Info("upgrade of the cluster started", "runtime_id", d.RuntimeID)
		return d.Upgrade.save(op, started.ID)
	}
	if extclient.IsTemporary(err) {
		return outcome.Of(op, component, s.cfg.RetryInterval, err)
	}
	// The refusal may be that another execution of this step, or somebody else, was faster.
	last, errLook := s.runtimes.LastOperation(ctx, op.Context.GlobalAccountID, d.RuntimeID)
	switch {
	case errLook == nil && d.Upgrade.startedBy(op, last):
		return d.Upgrade.save(op, last.ID)
	case errLook == nil && last.Running():
		return worker.Wait(op, s.cfg.RetryInterval, otherFirst)
	}
	return worker.Fail(op, outcome.Error(component, err))
}

const otherFirst = "another operation of the runtime must end first"

// startedBy reports whether the runtime's last operation is the upgrade that op has started.
func (u Upgrade) startedBy(op worker.Operation, last OperationStatus) bool {
	return u.For == op.ID && last.ID != u.After && last.Operation == "UpgradeShoot"
}

func (u Upgrade) save(op worker.Operation, id string) (worker.Operation, time.Duration, error) {
	u.OperationID = id
	return op, 0, op.SaveDetails(Details{Upgrade: u})
}

// upgradeInput is what op's update or upgrade sends.
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

// checkUpgrade waits until the upgrade that op has started has ended. One that failed is noted, so that the operation,
// when it is tried again from this stage, starts a new one.
func (s *shared) checkUpgrade(ctx context.Context, op worker.Operation, d Details, log *slog.Logger) (worker.Operation, time.Duration, error) {
	u := d.Upgrade
	switch {
	case u.For != op.ID:
		return worker.Skip(op, "this operation has started no upgrade of the cluster")
	case u.OperationID == "":
		return s.upgradeAgain(ctx, op, d, log)
	}
	status, err := s.runtimes.OperationStatus(ctx, op.Context.GlobalAccountID, u.OperationID, d.Kyma)
	if err != nil {
		return outcome.Of(op, component, s.cfg.ErrorInterval, err)
	}
	switch status.State {
	case StateSucceeded:
		return op, 0, nil
	case StatePending, StateInProgress:
		return worker.Wait(op, s.cfg.UpgradePollInterval, "the cluster is being upgraded")
	case StateFailed:
		if err := op.SaveDetails(Details{Upgrade: Upgrade{For: op.ID, After: u.OperationID}}); err != nil {
			return worker.Fail(op, outcome.Error(component, err))
		}
		return worker.Fail(op, failed(status))
	}
	return worker.Fail(op, unexpected(status))
}

func (s *shared) upgradeAgain(ctx context.Context, op worker.Operation, d Details, log *slog.Logger) (worker.Operation, time.Duration, error) {
	input, err := s.upgradeInput(op)
	if err != nil {
		return worker.Fail(op, outcome.Error("keb", err))
	}
	op, after, err := s.upgrade(ctx, op, d, input, log)
	if after == 0 && err == nil {
		return worker.Wait(op, s.cfg.UpgradePollInterval, "the cluster is being upgraded")
	}
	return op, after, err
}
