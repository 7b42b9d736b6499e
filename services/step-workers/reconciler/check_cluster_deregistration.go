package reconciler

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// checkClusterDeregistration waits until the Reconciler has deregistered the runtime.
type checkClusterDeregistration struct{ *shared }

// Name implements worker.Step.
func (checkClusterDeregistration) Name() string { return "Check_Cluster_Deregistration" }

// Describe implements worker.Described.
func (checkClusterDeregistration) Describe() worker.Description {
	return worker.Description{
		Summary: "Waits until the Reconciler has deregistered the runtime.",
		Calls: []worker.Call{
			{System: system, Operation: "GET /clusters/{runtimeID}/configs/{version}/status"},
			{System: system, Operation: "DELETE /clusters/{runtimeID}"},
		},
		Details: savedMembers(),
	}
}

// Run implements worker.Step.
func (s checkClusterDeregistration) Run(ctx context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(system, err))
	}
	if d.RuntimeID == "" {
		return worker.Skip(op, "the cluster was never registered with the reconciler")
	}
	if d.DeregisteredAt.IsZero() || d.ConfigurationVersion == 0 {
		return s.start(ctx, op, d)
	}
	got, err := s.reconciler.status(ctx, d.RuntimeID, d.ConfigurationVersion)
	switch {
	case extclient.IsStatus(err, http.StatusNotFound):
		return op, 0, forget(op)
	case err != nil && !extclient.IsTemporary(err) && ctx.Err() == nil:
		return s.end(op, outcome.Error(system, err))
	case err != nil:
		return outcome.Again(op, system, s.cfg.ErrorInterval, err)
	}
	switch got.Status {
	case statusDeleted:
		return op, 0, forget(op)
	case statusDeletePending, statusDeleting, statusDeleteRetryable:
		return worker.Wait(op, s.cfg.PollInterval, "the cluster is being deregistered: "+got.Status)
	case statusDeleteError, statusError:
		return s.end(op, failures(got))
	}
	return worker.Wait(op, s.cfg.ErrorInterval, "the cluster is in the status "+extclient.Sanitize(got.Status))
}

// start starts a deregistration without a saved version, or again after the step gave up: a repeated deprovisioning does not repeat
// Deregister_Cluster if that step succeeded before.
func (s checkClusterDeregistration) start(ctx context.Context, op worker.Operation, d Details) (worker.Operation, time.Duration, error) {
	gone, err := s.deregister(ctx, op, d)
	switch {
	case err != nil:
		return outcome.Of(op, system, s.cfg.ErrorInterval, err)
	case gone:
		return op, 0, nil
	}
	return worker.Wait(op, s.cfg.PollInterval, "the cluster is being deregistered")
}

// end fails the step and clears the saved data, so that a later deprovisioning starts a new deregistration.
func (s checkClusterDeregistration) end(op worker.Operation, e *worker.Error) (worker.Operation, time.Duration, error) {
	err := op.SaveDetails(map[string]any{"clusterConfigurationVersion": nil, "appliedBy": nil, "deregisteredAt": nil})
	if err != nil {
		return worker.Fail(op, outcome.Error(system, err))
	}
	return worker.Fail(op, e)
}
