package edp

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

// registration registers the subaccount as a data tenant.
type registration struct {
	cfg Config
	edp *client
}

// Name implements worker.Step.
func (registration) Name() string { return "EDP_Registration" }

// Describe implements worker.Described.
func (registration) Describe() worker.Description {
	return worker.Description{
		Summary: "Registers the subaccount as a data tenant with its metadata.",
		Calls: []worker.Call{
			{System: component, Operation: "POST " + tenantsRoute},
			{System: component, Operation: "GET " + metadataRoute},
			{System: component, Operation: "POST " + metadataRoute},
			{System: component, Operation: "DELETE " + entryRoute},
			{System: component, Operation: "DELETE " + tenantRoute},
		},
		Details: []string{"registered", "tenant"},
	}
}

// Run implements worker.Step. What an earlier attempt has registered is completed; a stale registration, which says
// something else about the subaccount, is removed and made anew.
func (s registration) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	var d Details
	if err := op.Details(Name, &d); err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	if d.Registered {
		return op, 0, nil
	}
	tenant := tenantName(op.Context.SubaccountID)
	stale, err := s.register(ctx, tenant, metadata(op))
	switch {
	case err != nil:
		return s.refused(op, err, log)
	case stale:
		log.Warn("replacing a stale registration", "tenant", tenant)
		if err := s.edp.remove(ctx, tenant); err != nil {
			return s.refused(op, fmt.Errorf("remove the stale registration: %w", err), log)
		}
		return worker.Wait(op, s.cfg.ConflictInterval, "a stale registration of the subaccount was removed")
	}
	return op, 0, op.SaveDetails(Details{Registered: true, Tenant: tenant})
}

// register reports whether there is a registration with other metadata.
func (s registration) register(ctx context.Context, tenant string, want []entry) (stale bool, err error) {
	have := map[string]string{}
	err = s.edp.createTenant(ctx, tenant)
	if extclient.IsStatus(err, http.StatusConflict) {
		entries, err := s.edp.entries(ctx, tenant)
		if err != nil {
			return false, fmt.Errorf("read metadata: %w", err)
		}
		for _, e := range entries {
			have[e.Key] = e.Value
		}
	} else if err != nil {
		return false, fmt.Errorf("create data tenant: %w", err)
	}
	for _, e := range want {
		value, known := have[e.Key]
		if known && value == e.Value {
			continue
		}
		if known {
			return true, nil
		}
		err := s.edp.createEntry(ctx, tenant, e)
		if extclient.IsStatus(err, http.StatusConflict) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("add metadata %s: %w", e.Key, err)
		}
	}
	return false, nil
}

func (s registration) refused(op worker.Operation, err error, log *slog.Logger) (worker.Operation, time.Duration, error) {
	// 404 comes from another operation of the same subaccount that has just removed the tenant.
	if extclient.IsStatus(err, http.StatusNotFound) {
		return outcome.Again(op, component, s.cfg.RetryInterval, reasoned(err))
	}
	if extclient.IsTemporary(err) || s.cfg.Required {
		return outcome.Of(op, component, s.cfg.RetryInterval, reasoned(err))
	}
	log.Warn("registration refused, going on without it", "err", err)
	return worker.Skip(op, "EDP refused the registration, which is not required")
}
