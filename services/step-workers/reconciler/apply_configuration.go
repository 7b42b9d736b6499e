package reconciler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// noRuntime is why an update or an upgrade has nothing to apply and nothing to check.
const noRuntime = "the instance has no runtime: it is suspended"

// configure tells the Reconciler about op's runtime, with everything that the steps of the stage have put together, and
// saves the version that this operation has to wait for. The same again makes no new version, so it may be repeated.
func (s *shared) configure(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	var d Details
	var runtime provisioner.Details
	if err := errors.Join(op.Details(Name, &d), op.Details(provisioner.Name, &runtime)); err != nil {
		return worker.Fail(op, outcome.Error(system, err))
	}
	switch {
	case d.appliedBy(op):
		return op, 0, nil
	case runtime.RuntimeID == "" && op.Type != event.Provision:
		return worker.Skip(op, noRuntime)
	case runtime.RuntimeID == "":
		return worker.Fail(op, &worker.Error{Component: "keb", Message: "no runtime id is saved: the runtime was not created"})
	}
	kubeconfig, err := op.Recall(ctx, provisioner.KubeconfigKey)
	if errors.Is(err, worker.ErrNotRemembered) {
		return worker.Fail(op, &worker.Error{Component: "keb", Message: "no kubeconfig: Get_Kubeconfig has not run in this stage"})
	}
	if err != nil {
		return outcome.Again(op, "keb", s.cfg.RetryInterval, err)
	}
	overrides, err := op.Overrides(ctx)
	if err != nil {
		return outcome.Again(op, "keb", s.cfg.RetryInterval, err)
	}
	body, err := newCluster(s.cfg, op, runtime.RuntimeID, kubeconfig, overrides)
	if err == nil {
		err = checkCredentials(op, body)
	}
	if err != nil {
		return worker.Fail(op, outcome.Error("keb", err))
	}
	if op.Upgrade != nil && op.Upgrade.DryRun {
		return worker.Skip(op, "dry run: the reconciler would get "+body.summary())
	}
	if op.Type == event.Provision && d.RuntimeID != "" && d.RuntimeID != runtime.RuntimeID {
		// The runtime that the instance had before it was suspended was never deregistered.
		if _, err := s.reconciler.delete(ctx, d.RuntimeID); err != nil {
			return outcome.Of(op, system, s.cfg.RetryInterval, fmt.Errorf("deregister the former runtime: %w", err))
		}
	}
	got, err := s.reconciler.apply(ctx, body)
	if err != nil {
		return outcome.Of(op, system, s.cfg.RetryInterval, err)
	}
	log.Info("cluster applied", "runtime_id", runtime.RuntimeID, "version", got.ConfigurationVersion)
	return op, 0, op.SaveDetails(map[string]any{
		"runtimeId": runtime.RuntimeID, "clusterConfigurationVersion": got.ConfigurationVersion,
		"clusterVersion": got.ClusterVersion, "appliedBy": op.ID, "kymaVersion": body.KymaConfig.Version,
		// An instance that gets a runtime again was deregistered before.
		"deregisteredAt": nil,
	})
}

// summary says what the Reconciler would get, without any value that could be a secret.
func (c cluster) summary() string {
	list := make([]string, 0, len(c.KymaConfig.Components))
	for _, part := range c.KymaConfig.Components {
		list = append(list, fmt.Sprintf("%s (%d overrides)", part.Name, len(part.Configuration)))
	}
	return fmt.Sprintf("Kyma %s with the profile %s and the components %s", c.KymaConfig.Version, c.KymaConfig.Profile, strings.Join(list, ", "))
}
