package reconciler

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// checkClusterConfiguration waits until the runtime has what was applied.
type checkClusterConfiguration struct{ *shared }

// Name implements worker.Step.
func (checkClusterConfiguration) Name() string { return "Check_Cluster_Configuration" }

// Run implements worker.Step.
func (s checkClusterConfiguration) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(system, err))
	}
	if d.ConfigurationVersion == 0 {
		return worker.Fail(op, &worker.Error{Component: system, Message: "nothing was applied: Create_Cluster_Configuration has saved no version"})
	}
	if s.now().Sub(op.FirstTriedAt) >= s.cfg.CheckTimeout {
		return s.giveUp(ctx, op, d, log)
	}
	got, err := s.reconciler.status(ctx, d.RuntimeID, d.ConfigurationVersion)
	if extclient.IsStatus(err, http.StatusNotFound) {
		return worker.Fail(op, &worker.Error{Component: system, Reason: "err_cluster_not_found", Err: err})
	}
	if err != nil {
		return outcome.Of(op, system, s.cfg.ErrorInterval, err)
	}
	switch got.Status {
	case statusReady:
		return op, 0, nil
	case statusPending, statusReconciling:
		return worker.Wait(op, s.cfg.PollInterval, "Kyma is being installed: "+got.Status)
	case statusRetryable:
		return worker.Retry(op, s.cfg.ProblemInterval, &worker.Error{
			Component: system, Reason: "err_reconciler_retryable", Message: "the reconciler will try again: " + got.problems(),
		})
	case statusError:
		return worker.Fail(op, problem(got))
	}
	return worker.Fail(op, &worker.Error{
		Component: system, Reason: outcome.ReasonState,
		Message: fmt.Sprintf("the cluster is in the unexpected status %q", extclient.Sanitize(got.Status)),
	})
}

// giveUp takes the cluster away from the Reconciler, which never gives up itself, and fails.
func (s checkClusterConfiguration) giveUp(ctx context.Context, op worker.Operation, d Details, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if _, err := s.reconciler.delete(ctx, d.RuntimeID); err != nil {
		log.Warn("the cluster stays with the reconciler", "runtime_id", d.RuntimeID, "err", err)
	}
	return worker.Fail(op, &worker.Error{
		Component: system, Reason: outcome.ReasonTimeout,
		Message: fmt.Sprintf("the runtime was not ready within %s", s.cfg.CheckTimeout),
	})
}

func problem(got state) *worker.Error {
	if len(got.Failures) == 0 {
		return &worker.Error{Component: system, Reason: "err_reconciler_nil_failures", Message: "the reconciler gave no reason"}
	}
	return &worker.Error{Component: system, Reason: "err_reconciler_failures", Message: got.problems()}
}
