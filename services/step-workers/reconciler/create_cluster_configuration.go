package reconciler

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// createClusterConfiguration tells the Reconciler about the runtime, with everything that the steps of the stage have
// put together.
type createClusterConfiguration struct{ *shared }

// Name implements worker.Step.
func (createClusterConfiguration) Name() string { return "Create_Cluster_Configuration" }

// Run implements worker.Step.
func (s createClusterConfiguration) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(system, err))
	}
	if d.ConfigurationVersion != 0 {
		return op, 0, nil
	}
	if d.RuntimeID == "" {
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
	body, err := newCluster(s.cfg, op, d.RuntimeID, kubeconfig, overrides)
	if err == nil {
		err = checkCredentials(op, body)
	}
	if err != nil {
		return worker.Fail(op, outcome.Error("keb", err))
	}
	got, err := s.reconciler.apply(ctx, body)
	if err != nil {
		return outcome.Of(op, system, s.cfg.RetryInterval, err)
	}
	log.Info("cluster applied", "runtime_id", d.RuntimeID, "version", got.ConfigurationVersion)
	return op, 0, op.SaveDetails(map[string]any{
		"runtimeId": d.RuntimeID, "clusterConfigurationVersion": got.ConfigurationVersion,
		"clusterVersion": got.ClusterVersion,
		// An instance that gets a runtime again was deregistered before.
		"deregisteredAt": nil,
	})
}
