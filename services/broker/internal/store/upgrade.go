package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/services/broker/internal/instance"
)

// Upgradable is a locked instance with the data that decides whether it can be upgraded.
type Upgradable struct {
	Summary
	// Credentials and Then are the names of the credentials and the instance as an upgrade requested now will find them. They include the
	// values of a running update, because the upgrade waits for it.
	Credentials []string
	Then        instance.Instance
}

// LockAll locks instances in the order of their ids, which prevents deadlocks, and returns them with the state of their
// runtimes. It omits missing instances.
func (t *Tx) LockAll(ctx context.Context, ids []string) (map[string]*Upgradable, error) {
	var rows []instanceRow
	// Primary key.
	err := t.tx.SelectContext(ctx, &rows, `SELECT `+instanceColumns+` FROM broker.instances
		WHERE id = ANY ($1) ORDER BY id FOR UPDATE`, postgres.Array(ids))
	if err != nil {
		return nil, wrap(ctx, "lock instances", err)
	}
	out := make(map[string]*Upgradable, len(rows))
	for n := range rows {
		i, err := rows[n].instance()
		if err != nil {
			return nil, err
		}
		out[i.ID] = &Upgradable{Summary: Summary{Instance: *i}, Then: *i}
	}
	if err := t.runningUpdates(ctx, ids, out); err != nil {
		return nil, err
	}
	// A separate statement sees the changes that were committed before the locks were granted.
	var states []struct {
		ID    string `db:"instance_id"`
		State string `db:"state"`
	}
	err = t.tx.SelectContext(ctx, &states,
		`SELECT instance_id, state FROM broker.runtimes WHERE instance_id = ANY ($1)`, postgres.Array(ids))
	if err != nil {
		return nil, wrap(ctx, "read states", err)
	}
	for _, s := range states {
		if u := out[s.ID]; u != nil {
			u.State = RuntimeState(s.State)
		}
	}
	var credentials []struct {
		ID   string `db:"instance_id"`
		Name string `db:"name"`
	}
	// Primary keys.
	err = t.tx.SelectContext(ctx, &credentials, `SELECT instance_id, name FROM broker.credentials WHERE instance_id = ANY ($1)
		UNION SELECT u.instance_id, json_object_keys(u.credentials)
			FROM broker.updates u JOIN broker.operations o ON o.id = u.operation_id
			WHERE u.instance_id = ANY ($1) AND `+unfinished+`
		ORDER BY instance_id, name`, postgres.Array(ids))
	if err != nil {
		return nil, wrap(ctx, "list credentials", err)
	}
	for _, c := range credentials {
		if u := out[c.ID]; u != nil {
			u.Credentials = append(u.Credentials, c.Name)
		}
	}
	return out, nil
}

// runningUpdates applies the values of unfinished updates to the instances.
func (t *Tx) runningUpdates(ctx context.Context, ids []string, into map[string]*Upgradable) error {
	var rows []struct {
		ID        string `db:"instance_id"`
		PlanID    string `db:"plan_id"`
		PlanName  string `db:"plan_name"`
		Context   string `db:"context"`
		Effective string `db:"effective_parameters"`
	}
	// Primary keys.
	err := t.tx.SelectContext(ctx, &rows, `SELECT u.instance_id, u.plan_id, u.plan_name, u.context, u.effective_parameters
		FROM broker.updates u JOIN broker.operations o ON o.id = u.operation_id
		WHERE u.instance_id = ANY ($1) AND o.state IN ('pending', 'in progress')`, postgres.Array(ids))
	if err != nil {
		return wrap(ctx, "read updates", err)
	}
	for _, r := range rows {
		u := into[r.ID]
		if u == nil {
			continue
		}
		var origin event.Context
		if err := json.Unmarshal([]byte(r.Context), &origin); err != nil {
			return fmt.Errorf("read updates: %w", err)
		}
		u.Then.Plan, u.Then.Context, u.Then.Effective = event.Plan{ID: r.PlanID, Name: r.PlanName}, origin, json.RawMessage(r.Effective)
	}
	return nil
}

// Recorded holds the data that distinguishes one order from another.
type Recorded struct {
	OperationID string `db:"id"`
	InstanceID  string `db:"instance_id"`
	Type        string `db:"type"`
}

// Recorded returns the existing operations among ids, by id.
func (t *Tx) Recorded(ctx context.Context, operationIDs []string) (map[string]Recorded, error) {
	var rows []Recorded
	// Primary key.
	err := t.tx.SelectContext(ctx, &rows,
		`SELECT id, instance_id, type FROM broker.operations WHERE id = ANY ($1)`, postgres.Array(operationIDs))
	if err != nil {
		return nil, wrap(ctx, "find operations", err)
	}
	out := make(map[string]Recorded, len(rows))
	for _, r := range rows {
		out[r.OperationID] = r
	}
	return out, nil
}

// InsertUpgrades inserts pending upgrades with unpublished requests. Unlike InsertOperation, it does not make them the newest
// operations of their instances: platforms neither request nor see upgrades.
func (t *Tx) InsertUpgrades(ctx context.Context, requests []Request) error {
	if len(requests) == 0 {
		return nil
	}
	n := len(requests)
	ids, instances, types, payloads := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	extensions, orchestrations, versions := make([]string, n), make([]string, n), make([]string, n)
	for i, r := range requests {
		payload, err := json.Marshal(event.OperationRequested{Operation: r.Operation, RequestedAt: r.At})
		if err != nil {
			return fmt.Errorf("insert upgrades: %w", err)
		}
		extension, err := json.Marshal(r.Extensions)
		if err != nil {
			return fmt.Errorf("insert upgrades: %w", err)
		}
		ids[i], instances[i], types[i] = r.Operation.ID, r.Operation.InstanceID, string(r.Operation.Type)
		payloads[i], extensions[i] = string(payload), string(extension)
		orchestrations[i], versions[i] = r.Operation.Upgrade.OrchestrationID, runtimeVersion(r.Operation)
	}
	_, err := t.tx.ExecContext(ctx, `INSERT INTO broker.operations (id, instance_id, type, state, created_at, updated_at,
			heard_at, request, extensions, orchestration_id, runtime_version)
		SELECT id, instance_id, type, $8, $9, $9, $9, request::json, extensions::json, orchestration_id, runtime_version
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[]) WITH ORDINALITY
			AS v (id, instance_id, type, request, extensions, orchestration_id, runtime_version, place) ORDER BY place`,
		postgres.Array(ids), postgres.Array(instances), postgres.Array(types), postgres.Array(payloads),
		postgres.Array(extensions), postgres.Array(orchestrations), postgres.Array(versions), string(event.Pending),
		requests[0].At)
	return wrap(ctx, "insert upgrades", err)
}
