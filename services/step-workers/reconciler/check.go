package reconciler

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// appliedBy reports whether op applied the saved configuration version. Details outlive operations: the version of an earlier operation
// was ready long ago.
func (d Details) appliedBy(op worker.Operation) bool {
	return d.ConfigurationVersion != 0 && d.AppliedBy == op.ID
}

// check checks the status of op's configuration version once; doing describes the activity in a message.
func (s *shared) check(ctx context.Context, op worker.Operation, d Details, doing string) (worker.Operation, time.Duration, error) {
	switch {
	case op.Type != event.Provision && !d.appliedBy(op):
		return worker.Skip(op, "this operation applied no configuration")
	case d.ConfigurationVersion == 0:
		return worker.Fail(op, &worker.Error{Component: system, Message: "nothing was applied: Create_Cluster_Configuration saved no version"})
	}
	got, err := s.reconciler.status(ctx, d.RuntimeID, d.ConfigurationVersion)
	if extclient.IsStatus(err, http.StatusNotFound) {
		return worker.Fail(op, &worker.Error{Component: system, Reason: "err_cluster_not_found", Err: err})
	}
	if err != nil {
		return op, s.cfg.RetryInterval, err
	}
	switch got.Status {
	case statusReady:
		return op, 0, nil
	case statusPending, statusReconciling:
		return worker.Wait(op, s.cfg.PollInterval, doing+": "+got.Status)
	case statusRetryable:
		return worker.Retry(op, s.cfg.ProblemInterval, &worker.Error{
			Component: system, Reason: "err_reconciler_retryable", Message: strings.TrimSuffix("the reconciler will try again: "+got.problems(), ": "),
		})
	case statusError:
		return worker.Fail(op, failures(got))
	}
	return worker.Fail(op, &worker.Error{
		Component: system, Reason: worker.ReasonState,
		Message: fmt.Sprintf("the cluster is in the unexpected status %q", extclient.Sanitize(got.Status)),
	})
}

func failures(got state) *worker.Error {
	if len(got.Failures) == 0 {
		return &worker.Error{Component: system, Reason: "err_reconciler_nil_failures", Message: "the reconciler gave no reason"}
	}
	return &worker.Error{Component: system, Reason: "err_reconciler_failures", Message: got.problems()}
}
