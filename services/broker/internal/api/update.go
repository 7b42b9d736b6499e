package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/services/broker/internal/catalog"
	"github.com/kyma-project/keb/services/broker/internal/instance"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Update changes an instance (docs/contracts/broker.md#updates). A change of the runtime becomes an operation, and the instance
// keeps its values until the operation succeeds. Update applies other changes immediately: changes of a suspended instance, of
// the global account, and of parameters that are only displayed. The context can suspend or resume a trial; the rest of
// such a request is ignored.
func (b *Broker) Update(ctx context.Context, req *osb.UpdateRequest) (osb.UpdateResult, error) {
	wanted, err := instance.ParseContextChange(req.Context)
	if err != nil {
		return nil, osb.BadRequest("%s", err)
	}
	expired, err := expires(req.Parameters)
	if err != nil {
		return nil, err
	}
	u := &updating{b: b, req: req, wanted: wanted, expired: expired, operationID: newOperationID()}
	var done outcome
	err = b.deps.Store.InTx(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		done, err = u.run(ctx, tx)
		// The instance has expired even if it cannot be suspended now.
		if refused, ok := errors.AsType[*osb.Error](err); ok && done.expired {
			done.refused, err = refused, nil
		}
		return err
	})
	if err != nil {
		return nil, answer(err)
	}
	if done.expired {
		b.audit(req.Call, "expire", req.InstanceID, "")
	}
	if done.refused != nil {
		return nil, done.refused
	}
	if done.action != "" {
		b.audit(req.Call, done.action, req.InstanceID, done.operation)
	}
	if done.operation != "" {
		b.deps.Notify(req.InstanceID)
	}
	return done.result, nil
}

// outcome is the result of a request.
type outcome struct {
	result osb.UpdateResult
	// refused is the answer if the request is rejected although it recorded something.
	refused *osb.Error
	// expired reports whether the request marked the instance as expired.
	expired bool
	// action is the recorded change, for the audit log; operation is the id of the new operation. Both can be empty.
	action, operation string
}

// expires reports whether the parameters of an update mark the instance as expired.
func expires(parameters json.RawMessage) (bool, error) {
	var members map[string]json.RawMessage
	if len(parameters) == 0 || json.Unmarshal(parameters, &members) != nil {
		return false, nil // the schema check reports the error
	}
	raw, ok := members["expired"]
	if !ok || string(raw) == "null" {
		return false, nil
	}
	var expired bool
	if json.Unmarshal(raw, &expired) != nil {
		return false, osb.BadRequest("parameters/expired must be true or false")
	}
	return expired, nil
}

// updating handles one PATCH request.
type updating struct {
	b           *Broker
	req         *osb.UpdateRequest
	wanted      instance.ContextChange
	expired     bool
	operationID string
	// unsettled holds the changes that an unsuccessful update may have made in the runtime. It is nil if the newest operation is not
	// such an update. run sets it.
	unsettled *event.Changes
}

func (u *updating) run(ctx context.Context, tx *store.Tx) (outcome, error) {
	i, newest, err := lockLive(ctx, tx, u.req.InstanceID)
	if err != nil {
		e, refused := errors.AsType[*osb.Error](err)
		if refused && e.Status == http.StatusUnprocessableEntity && !u.req.AcceptsIncomplete {
			return outcome{}, osb.AsyncRequired() // this check comes before those that depend on the state
		}
		return outcome{}, err
	}
	if u.unsettled, err = unsettled(ctx, tx, newest); err != nil {
		return outcome{}, err
	}
	changed, err := u.check(i)
	if err != nil {
		return outcome{}, err
	}
	if u.expired {
		if err := u.expire(ctx, tx, i); err != nil {
			return outcome{}, err
		}
	}
	done, err := u.decide(ctx, tx, i, newest, changed)
	done.expired = u.expired
	return done, err
}

// unsettled returns the changes that an unsuccessful update may have made in the runtime, including those of earlier unsuccessful
// updates. It returns nil if the newest operation is not such an update.
func unsettled(ctx context.Context, tx *store.Tx, newest *instance.Operation) (*event.Changes, error) {
	if newest.Type != event.Update || !newest.State.Final() || newest.State == event.Succeeded {
		return nil, nil
	}
	changes, err := tx.Changes(ctx, newest.ID)
	return &changes, err
}

// lockLive locks an instance that is not being deleted, and returns it with its newest operation.
func lockLive(ctx context.Context, tx *store.Tx, id string) (*instance.Instance, *instance.Operation, error) {
	i, err := tx.Lock(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		newest, err := tx.NewestOperation(ctx, id)
		switch {
		case err != nil && !errors.Is(err, store.ErrNotFound):
			return nil, nil, err
		case err == nil && !newest.State.Final():
			return nil, nil, osb.ConcurrencyError()
		}
		return nil, nil, osb.NotFound("there is no such service instance")
	}
	if err != nil {
		return nil, nil, err
	}
	newest, err := tx.Operation(ctx, i.OperationID)
	if err != nil {
		return nil, nil, err
	}
	if newest.Type != event.Deprovision || newest.Suspension {
		return i, newest, nil
	}
	switch {
	case !newest.State.Final():
		return nil, nil, osb.ConcurrencyError()
	case newest.State == event.Succeeded || !i.DeletedAt.IsZero():
		return nil, nil, osb.NotFound("the service instance is deleted")
	}
	return nil, nil, osb.Unprocessable("the deprovisioning of this instance failed: it can only be deprovisioned again")
}

// check validates the request against the instance.
func (u *updating) check(i *instance.Instance) (*catalog.Changed, error) {
	if i.ServiceID != u.req.ServiceID {
		return nil, osb.BadRequest("service_id is not that of this service instance")
	}
	update := catalog.Update{
		PlanID: i.Plan.ID, NewPlanID: u.req.PlanID, Runtime: i.Runtime, Sent: i.Sent, Effective: i.Effective,
		Parameters: u.req.Parameters,
	}
	if u.unsettled != nil {
		update.Unsettled = u.unsettled.Parameters
	}
	changed, err := u.b.deps.Catalog.ResolveUpdate(update)
	if errors.Is(err, catalog.ErrPlanChange) {
		return nil, osb.PlanNotUpdateable()
	}
	if err != nil {
		return nil, orderError(err)
	}
	if u.req.MaintenanceInfo != nil && u.req.PlanID == "" {
		plan := u.req.Service.Plan(i.Plan.ID)
		if plan == nil {
			plan = &osb.Plan{Name: i.Plan.Name}
		}
		if e := plan.CheckMaintenanceInfo(u.req.MaintenanceInfo); e != nil {
			return nil, e
		}
	}
	if u.expired && i.Plan.Name != catalog.Trial {
		return nil, osb.BadRequest("parameters/expired is for instances of plan %s", catalog.Trial)
	}
	if u.expired && (u.wanted.Active == nil || *u.wanted.Active) {
		return nil, osb.BadRequest("parameters/expired needs context/active false")
	}
	if !u.req.AcceptsIncomplete {
		return nil, osb.AsyncRequired()
	}
	return changed, nil
}

func (u *updating) expire(ctx context.Context, tx *store.Tx, i *instance.Instance) error {
	now := u.b.deps.Now()
	if i.ExpiredAt.IsZero() {
		i.ExpiredAt = now
	}
	return tx.Expire(ctx, i.ID, now)
}

func (u *updating) decide(
	ctx context.Context, tx *store.Tx, i *instance.Instance, newest *instance.Operation, changed *catalog.Changed,
) (outcome, error) {
	failed, err := neverProvisioned(ctx, tx, newest)
	if err != nil {
		return outcome{}, err
	}
	if failed {
		return outcome{}, osb.Unprocessable("the provisioning of this instance failed: it cannot be updated, only deprovisioned")
	}
	if done, ok, err := u.activate(ctx, tx, i, newest); ok || err != nil {
		return done, err
	}
	if !i.ExpiredAt.IsZero() {
		return u.moveExpired(ctx, tx, i, newest)
	}
	if newest.Suspension && newest.State.Final() && newest.State != event.Succeeded {
		return outcome{}, osb.Unprocessable(
			"the suspension or unsuspension of the instance failed: send context/active true or false again, or deprovision it")
	}
	t, err := u.target(ctx, tx, i, changed)
	if err != nil {
		return outcome{}, err
	}
	if !newest.State.Final() {
		return u.meanwhile(ctx, tx, t, newest)
	}
	if newest.Type == event.Deprovision || t.changes == nil {
		return u.atOnce(ctx, tx, i, t)
	}
	return u.record(ctx, tx, i, t)
}

// activate suspends or resumes a trial, or resumes an instance that was a trial when it was suspended. It returns false if the request does
// neither.
func (u *updating) activate(
	ctx context.Context, tx *store.Tx, i *instance.Instance, newest *instance.Operation,
) (outcome, bool, error) {
	if u.wanted.Active == nil {
		return outcome{}, false, nil
	}
	if resumes := newest.Suspension && *u.wanted.Active; i.Plan.Name != catalog.Trial && !resumes {
		return outcome{}, false, nil
	}
	begin, action := u.b.suspend, "suspend"
	if *u.wanted.Active {
		begin, action = u.b.resume, "unsuspend"
	}
	operation, err := begin(ctx, tx, u.req.Call, i, newest, u.operationID)
	if err != nil || operation == "" {
		return outcome{}, false, err
	}
	done := outcome{result: osb.Accepted{Operation: operation, DashboardURL: i.DashboardURL, Metadata: u.b.metadata(i)}}
	if operation == u.operationID {
		done.action, done.operation = action, operation
	}
	return done, true, nil
}

// moveExpired handles an update of an expired instance: it changes only the global account.
func (u *updating) moveExpired(
	ctx context.Context, tx *store.Tx, i *instance.Instance, newest *instance.Operation,
) (outcome, error) {
	t := &target{Instance: *i}
	t.Context = u.b.moved(i.Context, u.wanted.GlobalAccountID)
	// A running update has its own context, which applies once the update succeeds.
	if newest.Type == event.Update && !newest.State.Final() && t.Context != i.Context {
		return outcome{}, osb.ConcurrencyError()
	}
	// A failed update has the old account. Only a new operation prevents an operator from retrying it.
	if u.unsettled != nil && t.Context != i.Context {
		t.changes = &event.Changes{}
		return u.record(ctx, tx, i, t)
	}
	return u.atOnce(ctx, tx, i, t)
}

// target is the instance after the update.
type target struct {
	instance.Instance
	// changes are the changes of the runtime; nil if there are none.
	changes *event.Changes
	// plain are the replaced credentials, unencrypted.
	plain map[string]json.RawMessage
}

func (u *updating) target(
	ctx context.Context, tx *store.Tx, i *instance.Instance, changed *catalog.Changed,
) (*target, error) {
	t := &target{Instance: *i}
	t.Plan = event.Plan{ID: changed.Plan.ID, Name: changed.Plan.Name}
	t.Sent, t.Effective = changed.Sent, changed.Effective
	t.Context = u.b.moved(i.Context, u.wanted.GlobalAccountID)
	t.Context.LicenseType = cmp.Or(u.wanted.LicenseType, i.Context.LicenseType)
	if u.req.MaintenanceInfo != nil {
		t.MaintenanceVersion = u.req.MaintenanceInfo.Version
	}
	var err error
	if t.plain, err = u.replaced(ctx, tx, i.ID, changed); err != nil {
		return nil, err
	}
	changes := event.Changes{
		Parameters: changed.Parameters, Plan: t.Plan.ID != i.Plan.ID,
		LicenseType: t.Context.LicenseType != i.Context.LicenseType, Credentials: slices.Sorted(maps.Keys(t.plain)),
	}
	if u.unsettled != nil {
		return t, u.settle(ctx, tx, t, changes)
	}
	if changes.Parameters != nil || changes.Plan || changes.LicenseType || len(changes.Credentials) > 0 ||
		t.MaintenanceVersion != i.MaintenanceVersion {
		t.changes = &changes
	}
	return t, nil
}

// settle makes the update overwrite the values that an unsuccessful update may have set in the runtime, even if the instance
// never had other values.
func (u *updating) settle(ctx context.Context, tx *store.Tx, t *target, changes event.Changes) error {
	changes.Plan = changes.Plan || u.unsettled.Plan
	changes.LicenseType = changes.LicenseType || u.unsettled.LicenseType
	have, err := tx.CredentialNames(ctx, t.ID)
	if err != nil {
		return err
	}
	for _, name := range u.unsettled.Credentials {
		// The instance does not have credentials that only the failed update had, so no step could claim them.
		if slices.Contains(have, name) && !slices.Contains(changes.Credentials, name) {
			changes.Credentials = append(changes.Credentials, name)
		}
	}
	slices.Sort(changes.Credentials)
	t.changes = &changes
	return nil
}

// replaced returns the credentials of the request that differ from the stored ones.
func (u *updating) replaced(
	ctx context.Context, tx *store.Tx, instanceID string, changed *catalog.Changed,
) (map[string]json.RawMessage, error) {
	wanted := plainCredentials(u.wanted.ServiceManager, changed.Kubeconfig)
	if len(wanted) == 0 {
		return nil, nil
	}
	sealed, err := tx.SealedCredentials(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	have := u.b.deps.Vault.Open(sealed...)
	maps.DeleteFunc(wanted, func(name string, value json.RawMessage) bool {
		if name == event.CredentialsServiceManager {
			return instance.SameServiceManager(have[name], value)
		}
		return bytes.Equal(have[name], value)
	})
	return wanted, nil
}

// moved returns the context of an instance whose subaccount moved to another global account, if the installation allows it. The
// hyperscaler account remains that of the original global account.
func (b *Broker) moved(c event.Context, globalAccountID string) event.Context {
	if !b.cfg.SubaccountMovement || globalAccountID == "" || globalAccountID == c.GlobalAccountID {
		return c
	}
	c.SubscriptionGlobalAccountID, c.GlobalAccountID = c.Subscription(), globalAccountID
	if c.SubscriptionGlobalAccountID == c.GlobalAccountID {
		c.SubscriptionGlobalAccountID = ""
	}
	return c
}

// meanwhile answers while an operation runs: it accepts a repetition of the same update, and rejects any other.
func (u *updating) meanwhile(
	ctx context.Context, tx *store.Tx, t *target, newest *instance.Operation,
) (outcome, error) {
	if newest.Type != event.Update {
		return outcome{}, osb.ConcurrencyError()
	}
	running, err := tx.UpdateHash(ctx, newest.ID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return outcome{}, err
	}
	hash, hashErr := t.hash()
	if hashErr != nil {
		return outcome{}, hashErr
	}
	if err != nil || running != hash {
		return outcome{}, osb.ConcurrencyError()
	}
	return outcome{result: u.accepted(&t.Instance, newest.ID)}, nil
}

// hash returns equal values exactly for equal targets of one instance. The credentials are random enough for the hash not to
// reveal them.
func (t *target) hash() (string, error) {
	return instance.UpdateIdentity{
		Plan: t.Plan, Context: t.Context, Sent: t.Sent, Effective: t.Effective, MaintenanceVersion: t.MaintenanceVersion,
		Credentials: t.plain,
	}.Hash()
}

func (u *updating) accepted(i *instance.Instance, operationID string) osb.Accepted {
	return osb.Accepted{Operation: operationID, DashboardURL: i.DashboardURL, Metadata: u.b.metadata(i)}
}

// atOnce applies a change that does not affect the runtime.
func (u *updating) atOnce(ctx context.Context, tx *store.Tx, i *instance.Instance, t *target) (outcome, error) {
	done := outcome{result: osb.Updated{DashboardURL: i.DashboardURL, Metadata: u.b.metadata(i)}}
	if t.changes == nil && t.Context == i.Context && osb.SameJSON(t.Sent, i.Sent) {
		return done, nil
	}
	sealed, err := u.b.deps.Vault.Seal(i.ID, t.plain)
	if err != nil {
		return outcome{}, err
	}
	done.action = "update"
	return done, tx.Change(ctx, &t.Instance, sealed)
}

// record stores a change as an operation.
func (u *updating) record(ctx context.Context, tx *store.Tx, i *instance.Instance, t *target) (outcome, error) {
	if err := u.b.deps.Rejections.Check(event.Update, i, &t.Instance); err != nil {
		return outcome{}, err
	}
	hash, err := t.hash()
	if err != nil {
		return outcome{}, err
	}
	sealed, err := u.b.deps.Vault.Seal(i.ID, t.plain)
	if err != nil {
		return outcome{}, err
	}
	names, err := tx.CredentialNames(ctx, i.ID)
	if err != nil {
		return outcome{}, err
	}
	for name := range t.plain {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	operation := t.Event(u.operationID, event.Update, names)
	operation.Update = t.changes
	request := store.Request{Operation: operation, At: u.b.deps.Now(), Extensions: extensions(ctx, u.req.Call, u.operationID)}
	if err := tx.InsertOperation(ctx, request); err != nil {
		return outcome{}, err
	}
	update := store.Update{OperationID: u.operationID, RequestHash: hash, Instance: &t.Instance, Credentials: sealed}
	if err := tx.InsertUpdate(ctx, update); err != nil {
		return outcome{}, err
	}
	return outcome{result: u.accepted(i, u.operationID), action: "update", operation: u.operationID}, nil
}
