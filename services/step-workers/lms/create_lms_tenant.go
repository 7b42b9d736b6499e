package lms

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// createTenant creates the tenant of the instance and the key of Fluent Bit. The key is created here because a retry loses the step's
// stage memory, and Request_LMS_Certificates retries until its certificate is signed.
func (s *shared) createTenant(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return op, 0, err
	}
	if d.TenantID == "" {
		name := tenantName(op.Context.Subscription())
		if name == "" {
			return worker.Fail(op, &worker.Error{Component: "keb", Message: fmt.Sprintf(
				"context.globalAccountId: %q is not a valid tenant name, want letters or digits", op.Context.Subscription())})
		}
		id, err := s.lms.create(ctx, tenant{
			Name: name, Region: tenantRegion(op.Runtime.Region), SAMLGroups: []string{"skr-logging-viewer"},
			ClusterType: s.cfg.ClusterType, DataCenter: "all", Environment: s.cfg.Environment, Project: "kyma", SAMLTenant: s.cfg.SAMLTenant,
		})
		if err != nil {
			// LMS does not indicate which errors are temporary.
			return worker.Retry(op, s.cfg.TenantInterval, err)
		}
		log.Info("tenant exists", "tenant_id", id)
		d.TenantID = id
	}
	c, err := newCredentials(op.Context.Subscription())
	if err != nil {
		return worker.Fail(op, &worker.Error{Err: err})
	}
	remembered, err := c.encode()
	if err != nil {
		return worker.Fail(op, &worker.Error{Err: err})
	}
	op.Remember(fluentBitKey, remembered)
	return op, 0, op.SaveDetails(map[string]any{"tenantId": d.TenantID})
}
