package reconciler

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// checkClusterDeregistration waits until the Reconciler has deregistered the runtime.
func (s *shared) checkClusterDeregistration(ctx context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return op, 0, err
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
		return s.end(op, err)
	case err != nil:
		return worker.Retry(op, s.cfg.RetryInterval, err)
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
func (s *shared) start(ctx context.Context, op worker.Operation, d Details) (worker.Operation, time.Duration, error) {
	gone, err := s.deregister(ctx, op, d)
	switch {
	case err != nil:
		return op, s.cfg.RetryInterval, err
	case gone:
		return op, 0, nil
	}
	return worker.Wait(op, s.cfg.PollInterval, "the cluster is being deregistered")
}

// end fails the step and clears the saved data, so that a later deprovisioning starts a new deregistration.
func (s *shared) end(op worker.Operation, cause error) (worker.Operation, time.Duration, error) {
	err := op.SaveDetails(map[string]any{"clusterConfigurationVersion": nil, "appliedBy": nil, "deregisteredAt": nil})
	if err != nil {
		return op, 0, err
	}
	return op, 0, cause
}
