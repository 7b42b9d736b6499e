package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/services/broker/internal/instance"
)

// Reserve inserts an instance unless its id exists, and reports whether it did. If two transactions reserve one id
// concurrently, the second waits for the end of the first.
func (t *Tx) Reserve(ctx context.Context, i *instance.Instance) (bool, error) {
	origin, err := json.Marshal(i.Context)
	if err != nil {
		return false, fmt.Errorf("reserve instance: %w", err)
	}
	runtime, err := json.Marshal(i.Runtime)
	if err != nil {
		return false, fmt.Errorf("reserve instance: %w", err)
	}
	res, err := t.tx.ExecContext(ctx, `INSERT INTO broker.instances (id, service_id, plan_id, plan_name, context, runtime,
			parameters, effective_parameters, dashboard_url, request_hash, operation_id, created_at, maintenance_version)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) ON CONFLICT (id) DO NOTHING`,
		i.ID, i.ServiceID, i.Plan.ID, i.Plan.Name, string(origin), string(runtime), string(i.Sent), string(i.Effective),
		i.DashboardURL, i.RequestHash, i.OperationID, i.CreatedAt, i.MaintenanceVersion)
	if err != nil {
		return false, wrap(ctx, "reserve instance", err)
	}
	n, err := res.RowsAffected()
	if n == 1 {
		t.touch(i.ID)
	}
	return n == 1, wrap(ctx, "reserve instance", err)
}

// Lock locks and returns an instance until the transaction ends. It returns ErrNotFound.
func (t *Tx) Lock(ctx context.Context, id string) (*instance.Instance, error) {
	return getInstance(ctx, t.tx, id, "FOR UPDATE")
}

// Operation returns an operation. It returns ErrNotFound.
func (t *Tx) Operation(ctx context.Context, id string) (*instance.Operation, error) {
	return getOperation(ctx, t.tx, operationByID, id)
}

// NewestOperation returns the newest operation of an instance, even of a removed one. It returns ErrNotFound.
func (t *Tx) NewestOperation(ctx context.Context, instanceID string) (*instance.Operation, error) {
	return getOperation(ctx, t.tx, newestOperation, instanceID)
}

// Provisioned reports whether a provisioning of an instance has succeeded.
func (t *Tx) Provisioned(ctx context.Context, instanceID string) (bool, error) {
	var ok bool
	err := t.tx.GetContext(ctx, &ok, provisioned, instanceID)
	return ok, wrap(ctx, "look for a provisioning", err)
}

// Request is a new operation with its request event.
type Request struct {
	Operation event.Operation
	At        time.Time
	// Extensions are the CloudEvents extensions of the event.
	Extensions map[string]string
	// Suspension has the meaning of instance.Operation.Suspension.
	Suspension bool
}

// InsertOperation inserts a pending operation with an unpublished request, and makes it the newest of its instance. Every
// deprovisioning, including a suspension, revokes the bindings of the instance.
func (t *Tx) InsertOperation(ctx context.Context, r Request) error {
	payload, err := json.Marshal(event.OperationRequested{Operation: r.Operation, RequestedAt: r.At})
	if err != nil {
		return fmt.Errorf("insert operation: %w", err)
	}
	extensions, err := json.Marshal(r.Extensions)
	if err != nil {
		return fmt.Errorf("insert operation: %w", err)
	}
	_, err = t.tx.ExecContext(ctx, `INSERT INTO broker.operations
			(id, instance_id, type, state, created_at, updated_at, heard_at, request, extensions, runtime_version,
				suspension)
		VALUES ($1, $2, $3, $4, $5, $5, $5, $6, $7, $8, $9)`,
		r.Operation.ID, r.Operation.InstanceID, string(r.Operation.Type), string(event.Pending), r.At,
		string(payload), string(extensions), runtimeVersion(r.Operation), r.Suspension)
	if err != nil {
		return wrap(ctx, "insert operation", err)
	}
	t.touch(r.Operation.InstanceID)
	_, err = t.tx.ExecContext(ctx, `UPDATE broker.instances SET operation_id = $2 WHERE id = $1 AND operation_id <> $2`,
		r.Operation.InstanceID, r.Operation.ID)
	if err != nil || r.Operation.Type != event.Deprovision {
		return wrap(ctx, "insert operation", err)
	}
	return t.RevokeBindings(ctx, r.Operation.InstanceID, r.At)
}

// UserAgent returns the client that requested an operation; empty if it is unknown. It returns ErrNotFound.
func (t *Tx) UserAgent(ctx context.Context, operationID string) (string, error) {
	requested, err := t.requested(ctx, operationID)
	return requested.UserAgent, err
}

// Changes returns the requested runtime changes of an update. It returns ErrNotFound.
func (t *Tx) Changes(ctx context.Context, operationID string) (event.Changes, error) {
	requested, err := t.requested(ctx, operationID)
	if err != nil || requested.Update == nil {
		return event.Changes{}, err
	}
	return *requested.Update, nil
}

// requested returns an operation as requested; it is empty if the request is no longer stored.
func (t *Tx) requested(ctx context.Context, operationID string) (event.Operation, error) {
	var request string
	// Primary key.
	err := t.tx.GetContext(ctx, &request,
		`SELECT coalesce(request::text, '{}') FROM broker.operations WHERE id = $1`, operationID)
	if err != nil {
		return event.Operation{}, wrap(ctx, "read request", err)
	}
	var requested event.OperationRequested
	if err := json.Unmarshal([]byte(request), &requested); err != nil {
		return event.Operation{}, fmt.Errorf("read request: %w", err)
	}
	return requested.Operation, nil
}

// Supersede marks an unfinished operation as cancelled by a deprovisioning.
func (t *Tx) Supersede(ctx context.Context, operationID, by string) error {
	_, err := t.tx.ExecContext(ctx, `UPDATE broker.operations SET superseded_by = $2
		WHERE id = $1 AND superseded_by = '' AND state IN ('pending', 'in progress')`, operationID, by)
	return wrap(ctx, "supersede operation", err)
}

// InsertCredentials stores sealed credentials of an instance, by name.
func (t *Tx) InsertCredentials(ctx context.Context, instanceID string, c Credentials) error {
	for name, value := range c.Sealed {
		_, err := t.tx.ExecContext(ctx, `INSERT INTO broker.credentials (instance_id, name, sealed, revision) VALUES ($1, $2, $3, $4)`,
			instanceID, name, value, c.Revision)
		if err != nil {
			return wrap(ctx, "insert credentials", err)
		}
	}
	return nil
}

// CredentialNames lists the names of the credentials of an instance.
func (t *Tx) CredentialNames(ctx context.Context, instanceID string) ([]string, error) {
	var names []string
	err := t.tx.SelectContext(ctx, &names,
		`SELECT name FROM broker.credentials WHERE instance_id = $1 ORDER BY name`, instanceID)
	return names, wrap(ctx, "list credentials", err)
}

// RuntimeCredentialNames lists the names of the credentials that the runtime of an instance may have: those of the instance, and those
// that only unsuccessful updates had.
func (t *Tx) RuntimeCredentialNames(ctx context.Context, instanceID string) ([]string, error) {
	var names []string
	// Primary key, index operations_instance.
	err := t.tx.SelectContext(ctx, &names, `SELECT name FROM broker.credentials WHERE instance_id = $1
		UNION SELECT json_array_elements_text(request #> '{operation,credentials}')
			FROM broker.operations WHERE instance_id = $1 AND type = 'update' AND request IS NOT NULL
		ORDER BY name`, instanceID)
	return names, wrap(ctx, "list credentials of the runtime", err)
}

// Revive deletes the tombstone of an instance.
func (t *Tx) Revive(ctx context.Context, instanceID string) error {
	_, err := t.tx.ExecContext(ctx, `DELETE FROM broker.tombstones WHERE instance_id = $1`, instanceID)
	return wrap(ctx, "revive instance", err)
}

// MarkDeleted hides an instance from the platform and keeps it for the remaining work.
func (t *Tx) MarkDeleted(ctx context.Context, instanceID string, at time.Time) error {
	_, err := t.tx.ExecContext(ctx,
		`UPDATE broker.instances SET deleted_at = $2 WHERE id = $1 AND deleted_at IS NULL`, instanceID, at)
	t.touch(instanceID)
	return wrap(ctx, "mark instance deleted", err)
}

// Bury deletes an instance with its credentials, inserts a tombstone, and erases the order and its author from the operations.
// The operations stay for last_operation.
func (t *Tx) Bury(ctx context.Context, instanceID string, at time.Time) error {
	for _, statement := range []string{
		// The delete cascades to the credentials.
		`DELETE FROM broker.instances WHERE id = $1 AND $2::timestamptz IS NOT NULL`,
		`INSERT INTO broker.tombstones (instance_id, deleted_at) VALUES ($1, $2)
			ON CONFLICT (instance_id) DO UPDATE SET deleted_at = excluded.deleted_at`,
		// Index operations_instance. The orchestrator has received the newest operation, so all requests were published. The
		// publication of one may not be recorded yet.
		`UPDATE broker.operations SET request = NULL, extensions = '{}', published_at = coalesce(published_at, $2)
			WHERE instance_id = $1 AND request IS NOT NULL`,
	} {
		if _, err := t.tx.ExecContext(ctx, statement, instanceID, at); err != nil {
			return wrap(ctx, "bury instance", err)
		}
	}
	t.touch(instanceID)
	return nil
}

// addStageOrders stores unknown orders of stages.
func (t *Tx) addStageOrders(ctx context.Context, orders []string) error {
	known := slices.DeleteFunc(slices.Clone(orders), func(s string) bool { return s == "" })
	if len(known) == 0 {
		return nil
	}
	slices.Sort(known)
	_, err := t.tx.ExecContext(ctx, `INSERT INTO broker.stage_orders (stages) SELECT u.stages FROM unnest($1::text[]) AS u (stages)
		WHERE NOT EXISTS (SELECT FROM broker.stage_orders s WHERE s.stages = u.stages) ON CONFLICT (stages) DO NOTHING`,
		postgres.Array(slices.Compact(known)))
	return wrap(ctx, "add orders of stages", err)
}

// Apply applies changes to the operations, guarded by the cursor. A change that is not newer than the stored state affects only
// the list of steps that were not completed. There must be at most one change per operation. Changes of unknown operations are
// ignored.
func (s *Store) Apply(ctx context.Context, changes []instance.Change, at time.Time) error {
	if len(changes) == 0 {
		return nil
	}
	n := len(changes)
	var (
		ids, states, stages, steps     = make([]string, n), make([]string, n), make([]string, n), make([]string, n)
		messages, failures, orders     = make([]string, n), make([]string, n), make([]string, n)
		cursors, stageTries, stepTries = make([]int64, n), make([]int64, n), make([]int64, n)
		openIDs, openNames             []string
	)
	for i, c := range changes {
		ids[i], states[i], cursors[i] = c.OperationID, string(c.State), c.Cursor
		stages[i], steps[i] = c.Position.Stage, c.Position.Step
		stageTries[i], stepTries[i] = int64(c.Position.StageAttempt), int64(c.Position.StepAttempt)
		messages[i], orders[i] = storable(c.Message), storable(strings.Join(c.Stages, ","))
		if c.Error != nil {
			raw, err := json.Marshal(c.Error)
			if err != nil {
				return fmt.Errorf("apply changes: %w", err)
			}
			failures[i] = string(raw)
		}
		for _, name := range c.NotCompleted {
			openIDs, openNames = append(openIDs, c.OperationID), append(openNames, name)
		}
	}
	return s.InTx(ctx, func(ctx context.Context, t *Tx) error {
		if err := t.lockEnding(ctx, changes); err != nil {
			return err
		}
		if err := t.addStageOrders(ctx, orders); err != nil {
			return err
		}
		var touched []string
		// Primary key. Only newer changes are written. The list of runtimes is refreshed only for operations that changed their
		// state, not for every step.
		err := t.tx.SelectContext(ctx, &touched, `WITH applied AS (UPDATE broker.operations o SET
				cursor = v.cursor, state = v.state, stage = v.stage, step = v.step, stage_attempt = v.stage_attempt,
				step_attempt = v.step_attempt, message = v.message, error = nullif(v.error, '')::json,
				updated_at = $10, heard_at = $10,
				stage_order = coalesce((SELECT s.id FROM broker.stage_orders s WHERE s.stages = nullif(v.stages, '')), o.stage_order)
			FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::int[], $7::int[], $8::text[],
				$9::text[], $11::text[]) AS v (id, state, cursor, stage, step, stage_attempt, step_attempt, message, error, stages)
			JOIN broker.operations b ON b.id = v.id
			WHERE o.id = v.id AND (v.cursor > o.cursor
				OR (v.cursor = o.cursor AND o.state IN ('pending', 'in progress')))
			RETURNING o.instance_id, o.state, b.state AS before)
			SELECT DISTINCT instance_id FROM applied WHERE state <> before OR state NOT IN ('pending', 'in progress')`,
			postgres.Array(ids), postgres.Array(states), postgres.Array(cursors), postgres.Array(stages),
			postgres.Array(steps), postgres.Array(stageTries), postgres.Array(stepTries), postgres.Array(messages),
			postgres.Array(failures), at, postgres.Array(orders))
		if err != nil {
			return wrap(ctx, "apply changes", err)
		}
		t.touch(touched...)
		if err := t.finishUpdates(ctx, changes); err != nil {
			return err
		}
		if err := t.applyDetails(ctx, changes); err != nil {
			return err
		}
		if len(openIDs) == 0 {
			return nil
		}
		_, err = t.tx.ExecContext(ctx, `UPDATE broker.operations o SET not_completed = ARRAY(
				SELECT DISTINCT name FROM unnest(o.not_completed || v.names) AS name ORDER BY name)
			FROM (SELECT id, array_agg(name) AS names FROM unnest($1::text[], $2::text[]) AS u (id, name) GROUP BY id) v
			WHERE o.id = v.id AND NOT o.not_completed @> v.names`,
			postgres.Array(openIDs), postgres.Array(openNames))
		return wrap(ctx, "apply changes", err)
	})
}
