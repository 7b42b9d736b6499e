package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/services/broker/internal/catalog"
	"github.com/kyma-project/keb/services/broker/internal/instance"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Provision accepts an order once the instance, its operation, its sealed credentials and its publication are committed. It does
// not depend on the bus. Without the database it returns 503.
func (b *Broker) Provision(ctx context.Context, req *osb.ProvisionRequest) (osb.ProvisionResult, error) {
	if err := instance.CheckLabel("instance_id", req.InstanceID); err != nil {
		return nil, osb.BadRequest("%s", err)
	}
	region := b.deps.Catalog.PlatformRegion(req.Region)
	origin, err := instance.ParseContext(req.Context, region)
	if err != nil {
		return nil, osb.BadRequest("%s", err)
	}
	resolved, err := b.deps.Catalog.Resolve(catalog.Order{
		PlanID: req.PlanID, PlatformRegion: region, InstanceID: req.InstanceID, UserID: origin.UserID,
		Parameters: req.Parameters, ShootID: newShootID(),
	})
	if err != nil {
		return nil, orderError(err)
	}
	if err := b.checkEUAccess(region, origin.GlobalAccountID); err != nil {
		return nil, err
	}
	if !req.AcceptsIncomplete {
		return nil, osb.AsyncRequired()
	}
	b.warnPlatform(req, origin)
	ordered, err := newInstance(req, origin, resolved)
	if err != nil {
		return nil, osb.BadRequest("parameters must be a JSON object")
	}
	ordered.CreatedAt = b.deps.Now()
	plain := plainCredentials(origin.ServiceManager, resolved.Kubeconfig)
	if origin.PlatformCredentials != nil {
		plain[event.CredentialsPlatform] = origin.PlatformCredentials
	}
	if req.Plan.MaintenanceInfo != nil {
		ordered.MaintenanceVersion = req.Plan.MaintenanceInfo.Version
	}
	sealed, err := b.deps.Vault.Seal(ordered.ID, plain)
	if err != nil {
		return nil, err
	}
	return b.order(ctx, req, ordered, sealed)
}

func orderError(err error) error {
	if errors.Is(err, catalog.ErrUnknownPlan) {
		return osb.BadRequest("plan_id: %s in this platform region", err)
	}
	if problems, ok := errors.AsType[catalog.Problems](err); ok {
		return osb.BadRequest("%s", problems)
	}
	return err
}

// warnPlatform logs a contradiction that the broker accepts (docs/contracts/osb.md, G19).
func (b *Broker) warnPlatform(req *osb.ProvisionRequest, origin instance.Origin) {
	o := req.OriginatingIdentity
	if o != nil && origin.Platform != "" && o.Platform != origin.Platform {
		b.deps.Log.Warn("originating identity and context name different platforms", "instance_id", req.InstanceID,
			"originating_platform", o.Platform, "context_platform", origin.Platform)
	}
}

func newInstance(req *osb.ProvisionRequest, origin instance.Origin, r *catalog.Resolved) (*instance.Instance, error) {
	hash, err := instance.Identity{
		ServiceID: req.ServiceID, PlanID: req.PlanID, Parameters: req.Parameters,
		Organization: req.OrganizationGUID, Space: req.SpaceGUID,
		GlobalAccountID: origin.GlobalAccountID, SubaccountID: origin.SubaccountID, PlatformRegion: r.PlatformRegion,
	}.Hash()
	if err != nil {
		return nil, err
	}
	return &instance.Instance{
		ID: req.InstanceID, ServiceID: req.ServiceID, Plan: event.Plan{ID: r.Plan.ID, Name: r.Plan.Name},
		Context: origin.Context, Runtime: r.Runtime, Sent: r.Sent, Effective: r.Effective,
		DashboardURL: r.DashboardURL, RequestHash: hash, OperationID: newOperationID(),
	}, nil
}

func plainCredentials(serviceManager json.RawMessage, kubeconfig []byte) map[string]json.RawMessage {
	plain := make(map[string]json.RawMessage, 2)
	if serviceManager != nil {
		plain[event.CredentialsServiceManager] = serviceManager
	}
	if kubeconfig != nil {
		// Marshal cannot fail for strings.
		text, _ := json.Marshal(map[string]string{"kubeconfig": string(kubeconfig)})
		plain[event.CredentialsKubeconfig] = text
	}
	return plain
}

// errVanished means that an instance was removed between two reads.
var errVanished = errors.New("instance vanished")

// errKept means that an instance is deleted and only kept because an unanswered request may still take effect. A new order replaces it; the
// deprovisioning of the new instance removes what that request creates.
var errKept = errors.New("instance kept")

// order records an order, or returns the state of an earlier order with the same id.
func (b *Broker) order(
	ctx context.Context, req *osb.ProvisionRequest, ordered *instance.Instance, sealed store.Credentials,
) (osb.ProvisionResult, error) {
	for {
		var (
			result   osb.ProvisionResult
			accepted bool
		)
		err := b.deps.Store.InTx(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
			accepted, err = tx.Reserve(ctx, ordered)
			if err == nil && !accepted {
				result, err = b.repeated(ctx, tx, ordered)
			}
			if errors.Is(err, errKept) {
				if err = tx.Bury(ctx, ordered.ID, ordered.CreatedAt); err == nil {
					accepted, err = tx.Reserve(ctx, ordered)
				}
			}
			if err == nil && accepted {
				result, err = b.record(ctx, tx, req, ordered, sealed)
			}
			return err
		})
		if errors.Is(err, errVanished) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return nil, answer(err)
		}
		if accepted {
			b.deps.Notify(ordered.ID)
			b.audit(req.Call, "provision", ordered.ID, ordered.OperationID)
		}
		return result, nil
	}
}

func (b *Broker) record(
	ctx context.Context, tx *store.Tx, req *osb.ProvisionRequest, i *instance.Instance, sealed store.Credentials,
) (osb.ProvisionResult, error) {
	// The row of the instance is removed shortly before its deprovisioning ends.
	newest, err := tx.NewestOperation(ctx, i.ID)
	switch {
	case err == nil && !newest.State.Final():
		return nil, osb.ConcurrencyError()
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return nil, err
	}
	if err := b.deps.Rejections.Check(event.Provision, i); err != nil {
		return nil, err
	}
	if err := b.checkTrial(ctx, tx, i); err != nil {
		return nil, err
	}
	names := make([]string, 0, len(sealed.Sealed))
	for _, name := range []string{event.CredentialsServiceManager, event.CredentialsPlatform, event.CredentialsKubeconfig} {
		if _, ok := sealed.Sealed[name]; ok {
			names = append(names, name)
		}
	}
	request := store.Request{
		Operation: i.Event(i.OperationID, event.Provision, names), At: i.CreatedAt, Extensions: extensions(ctx, req.Call, i.OperationID),
	}
	if err := tx.InsertOperation(ctx, request); err != nil {
		return nil, err
	}
	if err := tx.InsertCredentials(ctx, i.ID, sealed); err != nil {
		return nil, err
	}
	if err := tx.Revive(ctx, i.ID); err != nil {
		return nil, err
	}
	return osb.Accepted{Operation: i.OperationID, DashboardURL: i.DashboardURL, Metadata: b.metadata(i)}, nil
}

// checkTrial rejects a second trial of a global account if the installation allows only one. Other plans do not count
// (docs/contracts/defects.md, number 13).
func (b *Broker) checkTrial(ctx context.Context, tx *store.Tx, i *instance.Instance) error {
	if !b.cfg.SingleTrial || i.Plan.Name != catalog.Trial {
		return nil
	}
	other, err := tx.OtherTrial(ctx, i.Context.GlobalAccountID, i.ID)
	if err == nil && other {
		return osb.Unprocessable("this global account has an instance of plan %s: only one is allowed", catalog.Trial)
	}
	return err
}

// repeated answers an order for an existing instance (docs/contracts/osb.md#provisioning, P04 to P10, P25, P26).
func (b *Broker) repeated(ctx context.Context, tx *store.Tx, ordered *instance.Instance) (osb.ProvisionResult, error) {
	existing, err := tx.Lock(ctx, ordered.ID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, errVanished
	}
	if err != nil {
		return nil, err
	}
	newest, err := tx.Operation(ctx, existing.OperationID)
	if err != nil {
		return nil, err
	}
	if newest.Type == event.Deprovision && !newest.Suspension {
		if !newest.State.Final() {
			return nil, osb.ConcurrencyError()
		}
		if newest.State == event.Succeeded && slices.Equal(newest.NotCompleted, []string{StepName}) {
			return nil, errKept
		}
		return nil, osb.Conflict("an instance with this id was deleted, and not everything behind it is removed yet: use another id")
	}
	ordering := newest.Type == event.Provision && !newest.Suspension
	failed, err := neverProvisioned(ctx, tx, newest)
	if err != nil {
		return nil, err
	}
	if failed {
		return nil, osb.Conflict("the provisioning of this instance failed: deprovision it first")
	}
	if existing.RequestHash != ordered.RequestHash {
		return nil, osb.Conflict("an instance with this id exists, with another plan, other parameters or for another account")
	}
	if ordering && !newest.State.Final() {
		return osb.Accepted{Operation: newest.ID, DashboardURL: existing.DashboardURL, Metadata: b.metadata(existing)}, nil
	}
	return osb.Exists{DashboardURL: existing.DashboardURL, Metadata: b.metadata(existing)}, nil
}

// metadata returns the instance metadata that the platform displays (docs/contracts/broker.md#requests).
func (b *Broker) metadata(i *instance.Instance) *osb.Metadata {
	labels := map[string]string{"Name": i.Runtime.Name}
	if b.cfg.PublicURL != "" && i.Plan.Name != catalog.OwnCluster {
		labels["KubeconfigURL"] = b.cfg.PublicURL + "/kubeconfig/" + url.PathEscape(i.ID)
	}
	return &osb.Metadata{Labels: labels}
}
