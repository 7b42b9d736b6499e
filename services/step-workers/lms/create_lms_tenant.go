package lms

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// createTenant sees to the tenant of the instance, and makes the key of Fluent Bit: what a step puts into the stage memory is lost
// with a retry, and Request_LMS_Certificates retries until its certificate is signed.
type createTenant struct{ *shared }

// Name implements worker.Step.
func (createTenant) Name() string { return "Create_LMS_Tenant" }

// Describe implements worker.Described.
func (createTenant) Describe() worker.Description {
	return worker.Description{
		Summary:     "Sees to a tenant in LMS, which the runtimes of a global account in one region share.",
		Calls:       []worker.Call{{System: component, Operation: "POST /tenants"}},
		Details:     []string{"tenantId"},
		StageMemory: []string{fluentBitKey},
	}
}

// Run implements worker.Step.
func (s createTenant) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	ordered, err := provisioner.Ordered(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	if ordered {
		return worker.Skip(op, provisioner.AlreadyOrdered)
	}
	if d.TenantID == "" {
		name := tenantName(op.Context.Subscription())
		if name == "" {
			return worker.Fail(op, &worker.Error{Component: "keb", Message: fmt.Sprintf(
				"context.globalAccountId: %q cannot name a tenant, want letters or digits in it", op.Context.Subscription())})
		}
		id, err := s.lms.create(ctx, tenant{
			Name: name, Region: tenantRegion(op.Runtime.Region), SAMLGroups: []string{"skr-logging-viewer"},
			ClusterType: s.cfg.ClusterType, DataCenter: "all", Environment: s.cfg.Environment, Project: "kyma", SAMLTenant: s.cfg.SAMLTenant,
		})
		if err != nil {
			// LMS does not say which of its errors will pass.
			return outcome.Again(op, component, s.cfg.TenantInterval, err)
		}
		log.Info("tenant is there", "tenant_id", id)
		d.TenantID = id
	}
	c, err := newCredentials(op.Context.Subscription())
	if err != nil {
		return worker.Fail(op, outcome.Error("keb", err))
	}
	remembered, err := c.encode()
	if err != nil {
		return worker.Fail(op, outcome.Error("keb", err))
	}
	op.Remember(fluentBitKey, remembered)
	return op, 0, op.SaveDetails(map[string]any{"tenantId": d.TenantID})
}
