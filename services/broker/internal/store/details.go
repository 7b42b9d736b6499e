package store

import (
	"context"
	"encoding/json"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/services/broker/internal/instance"
)

// applyDetails stores the saved data of ended operations for their instances, from the newest operation only. An operation that
// ended without data, for example one cancelled before its start, keeps the stored data. A complete deprovisioning removes
// the data. Every suspension removes the id of the runtime.
func (t *Tx) applyDetails(ctx context.Context, changes []instance.Change) error {
	var (
		ids, states, details, runtimes []string
		cursors, complete              []int64
	)
	for _, c := range changes {
		if !c.State.Final() || (c.Details == nil && c.State != event.Succeeded) {
			continue
		}
		ids, states, cursors = append(ids, c.OperationID), append(states, string(c.State)), append(cursors, c.Cursor)
		details, runtimes = append(details, storable(string(c.Details))), append(runtimes, storable(runtimeID(c.Details)))
		complete = append(complete, 0)
		if c.State == event.Succeeded && len(c.NotCompleted) == 0 {
			complete[len(complete)-1] = 1
		}
	}
	if len(ids) == 0 {
		return nil
	}
	// Primary keys. The condition ignores an old fact: the operation's state no longer matches.
	var touched []string
	err := t.tx.SelectContext(ctx, &touched, `UPDATE broker.instances i SET
			details_seq = v.seq, details = nullif(v.details, '')::json, runtime_id = v.runtime_id
		FROM (SELECT DISTINCT ON (o.instance_id) o.instance_id, o.seq,
				CASE WHEN o.type = 'deprovision' AND u.complete = 1 THEN '' ELSE u.details END AS details,
				CASE WHEN o.type = 'deprovision' AND o.state = 'succeeded' AND (o.suspension OR u.complete = 1) THEN ''
					ELSE u.runtime_id END AS runtime_id
			FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::int[])
				AS u (id, state, cursor, details, runtime_id, complete)
			JOIN broker.operations o ON o.id = u.id
			WHERE o.state = u.state AND o.cursor = u.cursor AND (u.details <> '' OR o.type = 'deprovision')
			ORDER BY o.instance_id, o.seq DESC) v
		WHERE i.id = v.instance_id AND v.seq >= i.details_seq RETURNING i.id`,
		postgres.Array(ids), postgres.Array(states), postgres.Array(cursors), postgres.Array(details),
		postgres.Array(runtimes), postgres.Array(complete))
	t.touch(touched...)
	return wrap(ctx, "apply details", err)
}

// lockEnding locks the instances whose operations these changes end, in the order of their ids. Other transactions lock an
// instance before its operations, so the opposite order could cause a deadlock.
func (t *Tx) lockEnding(ctx context.Context, changes []instance.Change) error {
	var ids []string
	for _, c := range changes {
		if c.State.Final() {
			ids = append(ids, c.OperationID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	// Primary keys.
	_, err := t.tx.ExecContext(ctx, `SELECT FROM broker.instances
		WHERE id IN (SELECT instance_id FROM broker.operations WHERE id = ANY ($1)) ORDER BY id FOR UPDATE`, postgres.Array(ids))
	return wrap(ctx, "lock instances", err)
}

// runtimeID returns the id of the runtime from the saved data: that of the Runtime Provisioner, or for an own cluster that of
// the Reconciler. It is empty if there is none.
func runtimeID(details json.RawMessage) string {
	var d struct {
		Provisioner struct {
			RuntimeID string `json:"runtimeId"`
		} `json:"provisioner"`
		Reconciler struct {
			RuntimeID string `json:"runtimeId"`
		} `json:"reconciler"`
	}
	if len(details) == 0 || json.Unmarshal(details, &d) != nil {
		return ""
	}
	if d.Provisioner.RuntimeID != "" {
		return d.Provisioner.RuntimeID
	}
	return d.Reconciler.RuntimeID
}

// runtimeVersion returns the Kyma version that an operation installs or keeps. It is empty if unknown, and for a dry run.
func runtimeVersion(o event.Operation) string {
	if o.Upgrade != nil && o.Upgrade.DryRun {
		return ""
	}
	if o.Upgrade != nil {
		return storable(o.Upgrade.KymaVersion)
	}
	var p struct {
		KymaVersion string `json:"kymaVersion"`
	}
	if o.Type == event.Deprovision || json.Unmarshal(o.Parameters, &p) != nil {
		return ""
	}
	return storable(p.KymaVersion)
}
