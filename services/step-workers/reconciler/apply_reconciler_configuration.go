package reconciler

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/btp"
)

// reasonNotKept is the reason of an update whose last configuration is unknown.
const reasonNotKept = "err_configuration_not_kept"

// applyReconcilerConfiguration sends the new credentials of an update, and the kubeconfig and administrators of an own cluster, to the
// Reconciler.
func (s *shared) applyReconcilerConfiguration(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	st, over := s.prepare(ctx, op, log)
	if over != nil {
		return over.op, over.after, over.err
	}
	if st.last == nil || !st.last.current(st.details) {
		return worker.Fail(op, &worker.Error{
			Component: "keb", Reason: reasonNotKept,
			Message: "the last configuration of the reconciler is not stored: upgrade Kyma of this runtime, which replaces it, and update again",
		})
	}
	body := st.last.Configuration
	before, _ := body.component(btp.Component)
	operator, ok, err := newOperator(op, before, st.overrides)
	if err != nil {
		return worker.Fail(op, &worker.Error{Err: err})
	}
	if ok && differs(before, operator) {
		body = body.with(operator)
	} else {
		ok = false
	}
	if op.Plan.Name == planOwnCluster {
		admins, err := administrators(op)
		if err != nil {
			return worker.Fail(op, &worker.Error{Err: err})
		}
		ok = ok || body.Kubeconfig != string(st.kubeconfig) || !slices.Equal(body.KymaConfig.Administrators, admins)
		body.Kubeconfig, body.KymaConfig.Administrators = string(st.kubeconfig), admins
	}
	if !ok && st.last.OperationID == st.details.AppliedBy {
		return worker.Skip(op, "the reconciler already has these values")
	}
	if err := body.check(); err != nil {
		return worker.Fail(op, &worker.Error{Err: err})
	}
	return s.give(ctx, op, log, st, body)
}

// differs reports whether two BTP operators have different credentials or sources.
func differs(a, b component) bool {
	return a.Namespace != b.Namespace || a.URL != b.URL || !maps.Equal(btpValues(a), btpValues(b))
}

const planOwnCluster = "own_cluster"
