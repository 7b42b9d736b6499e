package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/services/broker/internal/instance"
)

// Update is an instance after an accepted update.
type Update struct {
	OperationID string
	// RequestHash is equal for two equivalent requests.
	RequestHash string
	// Instance is the instance after the update.
	Instance *instance.Instance
	// Credentials are the credentials that the update replaces.
	Credentials Credentials
}

// InsertUpdate stores the result of an update until its operation succeeds. It deletes an earlier unsuccessful update of the
// instance.
func (t *Tx) InsertUpdate(ctx context.Context, u Update) error {
	origin, err := json.Marshal(u.Instance.Context)
	if err != nil {
		return fmt.Errorf("insert update: %w", err)
	}
	if u.Credentials.Sealed == nil {
		u.Credentials.Sealed = map[string]string{}
	}
	sealed, err := json.Marshal(u.Credentials.Sealed)
	if err != nil {
		return fmt.Errorf("insert update: %w", err)
	}
	i := u.Instance
	_, err = t.tx.ExecContext(ctx, `INSERT INTO broker.updates (instance_id, operation_id, request_hash, plan_id, plan_name,
			context, parameters, effective_parameters, maintenance_version, credentials, credentials_revision)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
		ON CONFLICT (instance_id) DO UPDATE SET operation_id = excluded.operation_id, request_hash = excluded.request_hash,
			plan_id = excluded.plan_id, plan_name = excluded.plan_name, context = excluded.context,
			parameters = excluded.parameters, effective_parameters = excluded.effective_parameters,
			maintenance_version = excluded.maintenance_version, credentials = excluded.credentials,
			credentials_revision = excluded.credentials_revision`,
		i.ID, u.OperationID, u.RequestHash, i.Plan.ID, i.Plan.Name, string(origin), string(i.Sent), string(i.Effective),
		i.MaintenanceVersion, string(sealed), u.Credentials.Revision)
	return wrap(ctx, "insert update", err)
}

// UpdateHash returns the request hash of an update that has not succeeded yet. It returns ErrNotFound.
func (t *Tx) UpdateHash(ctx context.Context, operationID string) (string, error) {
	var hash string
	err := t.tx.GetContext(ctx, &hash, `SELECT request_hash FROM broker.updates WHERE operation_id = $1`, operationID)
	return hash, wrap(ctx, "read update", err)
}

// Change updates an instance and adds or replaces the given credentials. It deletes an earlier unsuccessful update of the
// instance: the later request takes precedence.
func (t *Tx) Change(ctx context.Context, i *instance.Instance, c Credentials) error {
	origin, err := json.Marshal(i.Context)
	if err != nil {
		return fmt.Errorf("change instance: %w", err)
	}
	_, err = t.tx.ExecContext(ctx, `UPDATE broker.instances SET plan_id = $2, plan_name = $3, context = $4, parameters = $5,
			effective_parameters = $6, maintenance_version = $7 WHERE id = $1`,
		i.ID, i.Plan.ID, i.Plan.Name, string(origin), string(i.Sent), string(i.Effective), i.MaintenanceVersion)
	if err != nil {
		return wrap(ctx, "change instance", err)
	}
	t.touch(i.ID)
	if _, err := t.tx.ExecContext(ctx, `DELETE FROM broker.updates WHERE instance_id = $1`, i.ID); err != nil {
		return wrap(ctx, "change instance", err)
	}
	for name, value := range c.Sealed {
		_, err := t.tx.ExecContext(ctx, `INSERT INTO broker.credentials (instance_id, name, sealed, revision) VALUES ($1, $2, $3, $4)
			ON CONFLICT (instance_id, name) DO UPDATE SET sealed = excluded.sealed, revision = excluded.revision`, i.ID, name, value, c.Revision)
		if err != nil {
			return wrap(ctx, "change instance", err)
		}
	}
	return nil
}

// SealedCredentials returns the sealed credentials of an instance.
func (t *Tx) SealedCredentials(ctx context.Context, instanceID string) ([]Secret, error) {
	var found []Secret
	err := t.tx.SelectContext(ctx, &found,
		`SELECT instance_id, name, sealed, revision FROM broker.credentials WHERE instance_id = $1`, instanceID)
	return found, wrap(ctx, "read credentials", err)
}

// Expire records the expiry of an instance. Only the first call has an effect.
func (t *Tx) Expire(ctx context.Context, instanceID string, at time.Time) error {
	t.touch(instanceID)
	_, err := t.tx.ExecContext(ctx,
		`UPDATE broker.instances SET expired_at = $2 WHERE id = $1 AND expired_at IS NULL`, instanceID, at)
	return wrap(ctx, "expire instance", err)
}

// OtherTrial reports whether a global account has another visible instance of plan trial. If two transactions ask for one
// account, the second waits for the end of the first.
func (t *Tx) OtherTrial(ctx context.Context, globalAccountID, instanceID string) (bool, error) {
	_, err := t.tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, "keb trial "+globalAccountID)
	if err != nil {
		return false, wrap(ctx, "count trials", err)
	}
	var found bool
	// Index instances_trials.
	err = t.tx.GetContext(ctx, &found, `SELECT EXISTS (SELECT FROM broker.instances
		WHERE plan_name = 'trial' AND context ->> 'globalAccountId' = $1 AND id <> $2 AND deleted_at IS NULL)`,
		globalAccountID, instanceID)
	return found, wrap(ctx, "count trials", err)
}

// finishUpdates applies the new values of the updates that succeed with these changes to their instances. It runs in the
// transaction that records the success, so both become visible together.
func (t *Tx) finishUpdates(ctx context.Context, changes []instance.Change) error {
	var ids []string
	for _, c := range changes {
		if c.State == event.Succeeded {
			ids = append(ids, c.OperationID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	// Unique key of updates.operation_id.
	_, err := t.tx.ExecContext(ctx, `WITH done AS (
			DELETE FROM broker.updates u USING broker.operations o
			WHERE u.operation_id = ANY ($1) AND o.id = u.operation_id AND o.state = 'succeeded'
			RETURNING u.*
		), changed AS (
			UPDATE broker.instances i SET plan_id = d.plan_id, plan_name = d.plan_name, context = d.context,
				parameters = d.parameters, effective_parameters = d.effective_parameters,
				maintenance_version = d.maintenance_version
			FROM done d WHERE i.id = d.instance_id
		)
		INSERT INTO broker.credentials (instance_id, name, sealed, revision)
		SELECT d.instance_id, c.key, c.value, d.credentials_revision FROM done d, json_each_text(d.credentials) c
		ON CONFLICT (instance_id, name) DO UPDATE SET sealed = excluded.sealed, revision = excluded.revision`, postgres.Array(ids))
	return wrap(ctx, "finish updates", err)
}
