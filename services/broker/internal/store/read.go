package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/services/broker/internal/instance"
)

// storable returns s without the characters that a Postgres text cannot contain.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\x00", "")
}

// Instance returns an instance. It returns ErrNotFound.
func (s *Store) Instance(ctx context.Context, id string) (*instance.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return getInstance(ctx, s.db, id, "")
}

// Operation returns an operation. It returns ErrNotFound.
func (s *Store) Operation(ctx context.Context, id string) (*instance.Operation, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return getOperation(ctx, s.db, operationByID, storable(id))
}

// NewestOperation returns the newest operation of an instance, even of a removed one. It returns ErrNotFound.
func (s *Store) NewestOperation(ctx context.Context, instanceID string) (*instance.Operation, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return getOperation(ctx, s.db, newestOperation, instanceID)
}

// provisioned relies on the index operations_instance.
const provisioned = `SELECT EXISTS (SELECT FROM broker.operations WHERE instance_id = $1 AND type = 'provision' AND state = 'succeeded')`

// Provisioned reports whether a provisioning of an instance has succeeded.
func (s *Store) Provisioned(ctx context.Context, instanceID string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var ok bool
	err := s.db.GetContext(ctx, &ok, provisioned, instanceID)
	return ok, wrap(ctx, "look for a provisioning", err)
}

// Known reports whether an instance exists, and whether a tombstone of it exists.
func (s *Store) Known(ctx context.Context, instanceID string) (exists, buried bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var row struct {
		There  bool `db:"there"`
		Buried bool `db:"buried"`
	}
	err = s.db.GetContext(ctx, &row, `SELECT EXISTS (SELECT FROM broker.instances WHERE id = $1) AS there,
		EXISTS (SELECT FROM broker.tombstones WHERE instance_id = $1) AS buried`, instanceID)
	return row.There, row.Buried, wrap(ctx, "look up instance", err)
}

// unfinished selects operations o that have not ended. Without coalesce the planner would prefer operations_unfinished, of which it expects few
// entries, to the primary key; while a transaction is held, that index has one for each former version of an ended operation.
const unfinished = `coalesce(o.state, '') IN ('pending', 'in progress')`

// Credentials returns the sealed credentials of an instance for an unfinished operation of that instance. For any other
// operation it returns ErrNotFound.
func (s *Store) Credentials(ctx context.Context, instanceID, operationID, name string) (Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	sealed := Secret{InstanceID: instanceID, Name: name}
	// An update has its own credentials, which replace those of the instance once the update succeeds.
	err := s.db.GetContext(ctx, &sealed, `SELECT coalesce(u.credentials ->> $3, c.sealed) AS sealed,
			CASE WHEN u.credentials ->> $3 IS NULL THEN c.revision ELSE u.credentials_revision END AS revision
		FROM broker.operations o
		LEFT JOIN broker.updates u ON u.operation_id = o.id
		LEFT JOIN broker.credentials c ON c.instance_id = o.instance_id AND c.name = $3
		WHERE o.instance_id = $1 AND o.id = $2 AND `+unfinished+`
			AND coalesce(u.credentials ->> $3, c.sealed) IS NOT NULL`,
		storable(instanceID), storable(operationID), storable(name))
	return sealed, wrap(ctx, "read credentials", err)
}

// EarlierUpdate returns the unfinished update of an instance that was accepted before an operation of it and replaces the credentials with a
// name. It returns ErrNotFound. Primary keys.
func (s *Store) EarlierUpdate(ctx context.Context, instanceID, operationID, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var id string
	err := s.db.GetContext(ctx, &id, `SELECT u.operation_id FROM broker.updates u
		JOIN broker.operations o ON o.id = u.operation_id
		JOIN broker.operations later ON later.id = $2 AND later.seq > o.seq
		WHERE u.instance_id = $1 AND u.credentials ->> $3 IS NOT NULL AND `+unfinished,
		storable(instanceID), storable(operationID), storable(name))
	return id, wrap(ctx, "look for an earlier update", err)
}

// Neighbours counts the other instances in an instance's subaccount, for an unfinished operation of the instance. It ignores own
// clusters, and instances that are suspended, are being removed, or whose removal has failed. Indexes of runtimes by subaccount, and of
// operations by instance.
func (s *Store) Neighbours(ctx context.Context, instanceID, operationID string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var n int
	err := s.db.GetContext(ctx, &n, `SELECT count(r.instance_id)
		FROM broker.operations o
		JOIN broker.runtimes own ON own.instance_id = o.instance_id
		LEFT JOIN broker.runtimes r ON r.subaccount_id = own.subaccount_id AND r.instance_id <> own.instance_id
			AND r.plan_name <> 'own_cluster' AND r.state NOT IN ('deprovisioning', 'deprovisioned', 'deprovisionincomplete', 'suspended')
			AND NOT (r.state = 'failed' AND (SELECT l.type FROM broker.operations l WHERE l.instance_id = r.instance_id
				AND l.type IN ('provision', 'deprovision') ORDER BY l.seq DESC LIMIT 1) = 'deprovision')
		WHERE o.instance_id = $1 AND o.id = $2 AND `+unfinished+`
		GROUP BY own.instance_id`, storable(instanceID), storable(operationID))
	return n, wrap(ctx, "count the instances of a subaccount", err)
}

// Publication is a request to publish.
type Publication struct {
	OperationID string
	InstanceID  string
	Type        event.OperationType
	// Payload is an event.OperationRequested as JSON.
	Payload    json.RawMessage
	Extensions map[string]string
	At         time.Time
}

type publicationRow struct {
	ID         string    `db:"id"`
	InstanceID string    `db:"instance_id"`
	Type       string    `db:"type"`
	Request    string    `db:"request"`
	Extensions string    `db:"extensions"`
	CreatedAt  time.Time `db:"created_at"`
}

const publicationColumns = `id, instance_id, type, request, extensions, created_at`

// notPublished selects operations that are found by another index; the reason is that of unfinished, for operations_unpublished.
const notPublished = `coalesce(published_at, 'infinity') = 'infinity'`

// UnpublishedOf lists the unpublished requests of instances in the order of acceptance.
func (s *Store) UnpublishedOf(ctx context.Context, instanceIDs []string) ([]Publication, error) {
	// Index operations_instance.
	return s.publications(ctx, `SELECT `+publicationColumns+` FROM broker.operations
		WHERE `+notPublished+` AND request IS NOT NULL AND instance_id = ANY ($1) ORDER BY seq`, postgres.Array(instanceIDs))
}

// UnpublishedInstances lists at most limit instances with an unpublished request that was accepted before a time.
func (s *Store) UnpublishedInstances(ctx context.Context, before time.Time, limit int) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var ids []string
	// Index operations_unpublished.
	err := s.db.SelectContext(ctx, &ids, `SELECT DISTINCT instance_id FROM (SELECT instance_id FROM broker.operations
		WHERE published_at IS NULL AND request IS NOT NULL AND created_at < $1 ORDER BY seq LIMIT $2) oldest`, before, limit)
	return ids, wrap(ctx, "list instances with unpublished requests", err)
}

func (s *Store) publications(ctx context.Context, query string, args ...any) ([]Publication, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var rows []publicationRow
	if err := s.db.SelectContext(ctx, &rows, query, args...); err != nil {
		return nil, wrap(ctx, "list publications", err)
	}
	out := make([]Publication, len(rows))
	for i, r := range rows {
		out[i] = Publication{
			OperationID: r.ID, InstanceID: r.InstanceID, Type: event.OperationType(r.Type),
			Payload: json.RawMessage(r.Request), At: r.CreatedAt,
		}
		if err := json.Unmarshal([]byte(r.Extensions), &out[i].Extensions); err != nil {
			return nil, fmt.Errorf("list publications: %w", err)
		}
	}
	return out, nil
}

// Published records that the bus accepted requests.
func (s *Store) Published(ctx context.Context, operationIDs []string, at time.Time) error {
	return s.exec(ctx, "mark published",
		`UPDATE broker.operations SET published_at = $2, heard_at = $2 WHERE id = ANY ($1) AND `+notPublished,
		postgres.Array(operationIDs), at)
}

// Unpublish marks requests for another publication. It ignores finished operations, and those whose request is erased.
func (s *Store) Unpublish(ctx context.Context, operationIDs []string, at time.Time) error {
	return s.exec(ctx, "publish again", `UPDATE broker.operations SET published_at = NULL, heard_at = $2
		WHERE id = ANY ($1) AND request IS NOT NULL AND state IN ('pending', 'in progress')`, postgres.Array(operationIDs), at)
}

// Silent lists at most limit unfinished, published operations that sent no fact since a time, in the order of acceptance and
// starting after a position. next is the position for the next call; 0 means that the end was reached.
func (s *Store) Silent(ctx context.Context, since time.Time, after int64, limit int) (ids []string, next int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var rows []struct {
		ID  string `db:"id"`
		Seq int64  `db:"seq"`
	}
	first, err := s.firstUnfinished(ctx)
	if err != nil {
		return nil, 0, err
	}
	after = max(after, first-1)
	// Index operations_unfinished.
	err = s.db.SelectContext(ctx, &rows, `SELECT id, seq FROM broker.operations
		WHERE state IN ('pending', 'in progress') AND seq > $2 AND heard_at < $1 AND published_at IS NOT NULL
		ORDER BY seq LIMIT $3`, since, after, limit)
	if err != nil {
		return nil, 0, wrap(ctx, "list silent operations", err)
	}
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	if len(rows) == limit {
		next = rows[limit-1].Seq
	}
	return ids, next, nil
}

// firstUnfinished returns the position of the first unfinished operation, and reads it once in a minute. Later ones have higher positions. While
// a transaction is held, Postgres keeps the index entries of all former versions of ended operations, which come before the first one.
func (s *Store) firstUnfinished(ctx context.Context) (int64, error) {
	now, last := time.Now(), s.first.Load()
	if last != nil && !now.Before(last.readAt) && now.Sub(last.readAt) < time.Minute {
		return last.seq, nil
	}
	f := firstSeq{readAt: now}
	err := s.db.GetContext(ctx, &f.seq, `SELECT coalesce(min(seq), 0) FROM broker.operations WHERE state IN ('pending', 'in progress')`)
	if err != nil {
		return 0, wrap(ctx, "look for the first unfinished operation", err)
	}
	if f.seq == 0 && last != nil {
		f.seq = last.seq
	}
	s.first.Store(&f)
	return f.seq, nil
}

// WithoutDetails lists at most limit newest ended operations of instances without saved data, ordered by instance and starting
// after one. It also returns the last of these instances.
func (s *Store) WithoutDetails(ctx context.Context, after string, limit int) (operationIDs []string, last string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var rows []struct {
		ID       string `db:"id"`
		Instance string `db:"instance_id"`
	}
	// Primary key, index operations_instance.
	err = s.db.SelectContext(ctx, &rows, `SELECT o.id, o.instance_id FROM broker.instances i CROSS JOIN LATERAL (
			SELECT id, instance_id FROM broker.operations
			WHERE instance_id = i.id AND state NOT IN ('pending', 'in progress') ORDER BY seq DESC LIMIT 1) o
		WHERE i.details_seq = 0 AND i.id > $1 ORDER BY i.id LIMIT $2`, after, limit)
	if err != nil {
		return nil, "", wrap(ctx, "list instances without saved data", err)
	}
	for _, r := range rows {
		operationIDs, last = append(operationIDs, r.ID), r.Instance
	}
	return operationIDs, last, nil
}

// Heard records the time of a query to the orchestrator about operations, whatever its answer.
func (s *Store) Heard(ctx context.Context, operationIDs []string, at time.Time) error {
	return s.exec(ctx, "mark heard",
		`UPDATE broker.operations SET heard_at = $2 WHERE id = ANY ($1)`, postgres.Array(operationIDs), at)
}

// purgeOperations relies on the indexes runtimes_state and operations_instance: broker.runtimes keeps a removed instance as long as the instance
// has operations.
const purgeOperations = `DELETE FROM broker.operations WHERE id IN (SELECT o.id
	FROM broker.runtimes r JOIN broker.operations o ON o.instance_id = r.instance_id
	WHERE r.state IN ('deprovisioned', 'failed') AND o.updated_at < $2 AND o.state NOT IN ('pending', 'in progress')
		AND NOT EXISTS (SELECT FROM broker.instances i WHERE i.id = r.instance_id) LIMIT $1)`

// purgeBatch is the number of rows that one statement deletes. A statement has the deadline of the store, and a large backlog would exceed it.
const purgeBatch = 5_000

// Purge deletes old finished operations of removed instances, and old tombstones. The failure of one deletion does not stop the others, and
// keeps what was deleted before.
func (s *Store) Purge(ctx context.Context, operationsBefore, tombstonesBefore time.Time) error {
	return errors.Join(
		s.purge(ctx, "purge operations", purgeOperations, operationsBefore),
		// Index runtimes_state.
		s.purge(ctx, "purge list of runtimes", `DELETE FROM broker.runtimes WHERE instance_id IN (SELECT r.instance_id
			FROM broker.runtimes r WHERE r.state IN ('deprovisioned', 'failed')
			AND NOT EXISTS (SELECT FROM broker.instances i WHERE i.id = r.instance_id)
			AND NOT EXISTS (SELECT FROM broker.operations o WHERE o.instance_id = r.instance_id) LIMIT $1)`),
		s.purge(ctx, "purge tombstones", `DELETE FROM broker.tombstones WHERE instance_id IN (SELECT instance_id
			FROM broker.tombstones WHERE deleted_at < $2 LIMIT $1)`, tombstonesBefore),
	)
}

// purge repeats a statement until it deletes fewer rows than its first argument, purgeBatch.
func (s *Store) purge(ctx context.Context, operation, statement string, args ...any) error {
	for {
		n, err := s.affected(ctx, operation, statement, append([]any{purgeBatch}, args...)...)
		if err != nil || n < purgeBatch {
			return err
		}
	}
}

func (s *Store) exec(ctx context.Context, operation, statement string, args ...any) error {
	_, err := s.affected(ctx, operation, statement, args...)
	return err
}

// affected executes a statement and returns the number of affected rows.
func (s *Store) affected(ctx context.Context, operation, statement string, args ...any) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	res, err := s.db.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, wrap(ctx, operation, err)
	}
	n, err := res.RowsAffected()
	return n, wrap(ctx, operation, err)
}
