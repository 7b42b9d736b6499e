package edp

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// deregistration removes the subaccount's data tenant.
func (s *shared) deregistration(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	var d Details
	if err := op.Details(Name, &d); err != nil {
		return op, 0, err
	}
	// A subaccount that was moved after the registration is registered under the saved name.
	tenant := d.Tenant
	if tenant == "" {
		tenant = tenantName(op.Context.SubaccountID)
	}
	// Clear the flag first, so that a later registration registers again even if this removal fails.
	if err := op.SaveDetails(map[string]any{"registered": nil}); err != nil {
		return op, 0, err
	}
	// All instances of a subaccount share the data tenant; the last one removes it (docs/decisions/0054-edp-tenant.md).
	neighbours, err := op.Neighbours(ctx)
	if err != nil {
		return worker.Retry(op, s.cfg.RetryInterval, &worker.Error{Component: "broker", Err: err})
	}
	if neighbours > 0 {
		if err := op.SaveDetails(map[string]any{"tenant": nil}); err != nil {
			return op, 0, err
		}
		return worker.Skip(op, fmt.Sprintf("the data tenant %s stays: the subaccount has other instances (%d)", tenant, neighbours))
	}
	existed, err := s.edp.remove(ctx, tenant)
	if err != nil {
		return op, s.cfg.RetryInterval, withReason(err)
	}
	if existed {
		op.NoteRemoved("data tenant " + tenant)
	}
	log.Info("registration removed", "tenant", tenant)
	return op, 0, op.SaveDetails(map[string]any{"tenant": nil})
}
