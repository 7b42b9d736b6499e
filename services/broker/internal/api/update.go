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

// Update changes an instance (facts/keb.md 1.7, facts/osb.md 2.6). A change that reaches the runtime becomes an operation, and
// the instance is as before until that succeeds. The others are made at once: those of a suspended instance, which has no
// runtime, the global account, and parameters that change only what is shown. The context may also suspend or resume a trial;
// the rest of such a request is passed over.
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
		// What has expired has expired, whether or not it can be suspended now.
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

// outcome is what became of a request.
type outcome struct {
	result osb.UpdateResult
	// refused is the answer when something was recorded nevertheless.
	refused *osb.Error
	// expired tells that the instance was declared expired.
	expired bool
	// action is what was recorded, for the audit; operation is the new operation. Each may be empty.
	action, operation string
}

// expires tells whether the parameters of an update declare the instance expired.
func expires(parameters json.RawMessage) (bool, error) {
	var members map[string]json.RawMessage
	if len(parameters) == 0 || json.Unmarshal(parameters, &members) != nil {
		return false, nil // the schema will say what is wrong
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

// updating is one PATCH.
type updating struct {
	b           *Broker
	req         *osb.UpdateRequest
	wanted      instance.ContextChange
	expired     bool
	operationID string
	// unsettled is set by run. It is what an update that did not succeed may have changed in the runtime; nil when the newest operation
	// is no such update.
	unsettled *event.Changes
}

func (u *updating) run(ctx context.Context, tx *store.Tx) (outcome, error) {
	i, newest, err := lockLive(ctx, tx, u.req.InstanceID)
	if err != nil {
		e, refused := errors.AsType[*osb.Error](err)
		if refused && e.Status == http.StatusUnprocessableEntity && !u.req.AcceptsIncomplete {
			return outcome{}, osb.AsyncRequired() // before what only a later request can change
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

// unsettled reads what an update that did not succeed may have changed in the runtime. It includes what earlier updates without
// success have left to it. It returns nil when the newest operation is no such update.
func unsettled(ctx context.Context, tx *store.Tx, newest *instance.Operation) (*event.Changes, error) {
	if newest.Type != event.Update || !newest.State.Final() || newest.State == event.Succeeded {
		return nil, nil
	}
	changes, err := tx.Changes(ctx, newest.ID)
	return &changes, err
}

// lockLive locks an instance that is there and not on its way out, and reads the operation that it stands by.
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
	return nil, nil, osb.Unprocessable("the deprovisioning of this instance has failed: it can only be deprovisioned again")
}

// check refuses what is wrong with the request in itself, given the instance.
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
	if newest.Type == event.Provision && !newest.Suspension && newest.State.Final() && newest.State != event.Succeeded {
		return outcome{}, osb.Unprocessable("the provisioning of this instance has failed: it cannot be updated, only deprovisioned")
	}
	if done, ok, err := u.activate(ctx, tx, i, newest); ok || err != nil {
		return done, err
	}
	if !i.ExpiredAt.IsZero() {
		return u.moveExpired(ctx, tx, i, newest)
	}
	if newest.Suspension && newest.State.Final() && newest.State != event.Succeeded {
		return outcome{}, osb.Unprocessable(
			"the instance was not suspended or brought back as it should: send context/active true or false again, or deprovision it")
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

// activate suspends or resumes a trial. It reports false when the request changes nothing about that.
func (u *updating) activate(
	ctx context.Context, tx *store.Tx, i *instance.Instance, newest *instance.Operation,
) (outcome, bool, error) {
	if i.Plan.Name != catalog.Trial || u.wanted.Active == nil {
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

// moveExpired answers for an instance that has expired: of all changes only its global account counts.
func (u *updating) moveExpired(
	ctx context.Context, tx *store.Tx, i *instance.Instance, newest *instance.Operation,
) (outcome, error) {
	t := &target{Instance: *i}
	t.Context = u.b.moved(i.Context, u.wanted.GlobalAccountID)
	// An update that runs has a context of its own, which counts once it succeeds.
	if newest.Type == event.Update && !newest.State.Final() && t.Context != i.Context {
		return outcome{}, osb.ConcurrencyError()
	}
	// Only an operation keeps an operator from retrying the update that failed, which has the old account.
	if u.unsettled != nil && t.Context != i.Context {
		t.changes = &event.Changes{}
		return u.record(ctx, tx, i, t)
	}
	return u.atOnce(ctx, tx, i, t)
}

// target is an instance as the request makes it.
type target struct {
	instance.Instance
	// changes is what reaches the runtime; nil when nothing does.
	changes *event.Changes
	// plain are the credentials that are replaced, in the clear.
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

// settle makes the update reach the runtime in any case, with what an update that did not succeed may have changed there: the runtime
// gets these values again, whether or not the instance ever had others.
func (u *updating) settle(ctx context.Context, tx *store.Tx, t *target, changes event.Changes) error {
	changes.Plan = changes.Plan || u.unsettled.Plan
	changes.LicenseType = changes.LicenseType || u.unsettled.LicenseType
	have, err := tx.CredentialNames(ctx, t.ID)
	if err != nil {
		return err
	}
	for _, name := range u.unsettled.Credentials {
		// Credentials that only the failed update had are not the instance's: no step could claim them.
		if slices.Contains(have, name) && !slices.Contains(changes.Credentials, name) {
			changes.Credentials = append(changes.Credentials, name)
		}
	}
	slices.Sort(changes.Credentials)
	t.changes = &changes
	return nil
}

// replaced are the credentials of the request that differ from the stored ones.
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
	have := u.b.deps.Sealer.Open(sealed...)
	maps.DeleteFunc(wanted, func(name string, value json.RawMessage) bool {
		if name == event.CredentialsServiceManager {
			return instance.SameServiceManager(have[name], value)
		}
		return bytes.Equal(have[name], value)
	})
	return wanted, nil
}

// moved is the context after the subaccount was moved to another global account, where an installation allows that: the
// hyperscaler account stays with the one that the instance was ordered in.
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

// meanwhile answers while an operation runs: the same update is accepted as what it is already, any other has to wait.
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

// hash is equal for two targets of one instance exactly when they are the same. The credentials in it are random enough for
// the hash not to give them away.
func (t *target) hash() (string, error) {
	return instance.UpdateIdentity{
		Plan: t.Plan, Context: t.Context, Sent: t.Sent, Effective: t.Effective, MaintenanceVersion: t.MaintenanceVersion,
		Credentials: t.plain,
	}.Hash()
}

func (u *updating) accepted(i *instance.Instance, operationID string) osb.Accepted {
	return osb.Accepted{Operation: operationID, DashboardURL: i.DashboardURL, Metadata: u.b.metadata(i)}
}

// atOnce makes a change that no runtime has to learn of.
func (u *updating) atOnce(ctx context.Context, tx *store.Tx, i *instance.Instance, t *target) (outcome, error) {
	done := outcome{result: osb.Updated{DashboardURL: i.DashboardURL, Metadata: u.b.metadata(i)}}
	if t.changes == nil && t.Context == i.Context && osb.SameJSON(t.Sent, i.Sent) {
		return done, nil
	}
	sealed, err := u.b.deps.Sealer.Seal(i.ID, t.plain)
	if err != nil {
		return outcome{}, err
	}
	done.action = "update"
	return done, tx.Change(ctx, &t.Instance, sealed)
}

// record makes a change an operation.
func (u *updating) record(ctx context.Context, tx *store.Tx, i *instance.Instance, t *target) (outcome, error) {
	hash, err := t.hash()
	if err != nil {
		return outcome{}, err
	}
	sealed, err := u.b.deps.Sealer.Seal(i.ID, t.plain)
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
