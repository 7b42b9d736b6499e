package edp

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// registration registers the subaccount as a data tenant.
// It does not read the metadata of an existing registration. It removes any registration of the
// subaccount, for example by an earlier attempt or another instance, and creates it again
// (docs/contracts/edp.md#conflict-and-failure) in the same run: when another run of the same command has succeeded meanwhile, the
// result of this one does not count, and nothing else would create it again.
func (s *shared) registration(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	var d Details
	if err := op.Details(Name, &d); err != nil {
		return op, 0, err
	}
	if d.Registered {
		return op, 0, nil
	}
	tenant := tenantName(op.Context.SubaccountID)
	err := s.register(ctx, tenant, metadata(op))
	if extclient.IsStatus(err, http.StatusConflict) {
		log.Warn("replacing an existing registration", "tenant", tenant)
		if _, err = s.edp.remove(ctx, tenant); err != nil {
			err = fmt.Errorf("remove an earlier registration: %w", err)
		} else if err = s.register(ctx, tenant, metadata(op)); extclient.IsStatus(err, http.StatusConflict) {
			return worker.Wait(op, s.cfg.ConflictInterval, "another operation registers the subaccount, too")
		}
	}
	switch {
	case err == nil:
		return op, 0, op.SaveDetails(Details{Registered: true, Tenant: tenant})
	// Another operation of the same subaccount has just removed the tenant.
	case extclient.IsStatus(err, http.StatusNotFound):
		return worker.Retry(op, s.cfg.RetryInterval, withReason(err))
	}
	return op, s.cfg.RetryInterval, withReason(err)
}

// register creates the data tenant with its metadata.
func (s *shared) register(ctx context.Context, tenant string, entries []entry) error {
	if err := s.edp.createTenant(ctx, tenant); err != nil {
		return fmt.Errorf("create data tenant: %w", err)
	}
	for _, e := range entries {
		if err := s.edp.createEntry(ctx, tenant, e); err != nil {
			return fmt.Errorf("add metadata %s: %w", e.Key, err)
		}
	}
	return nil
}
