package store

import (
	"context"
	"slices"
)

// Keep replaces the kept value of a worker; the name of the secret is the worker. It returns ErrNotFound unless the operation is
// an unfinished one of the instance.
func (s *Store) Keep(ctx context.Context, operationID string, k Secret) error {
	if !isStorable(k.InstanceID, operationID) {
		return ErrNotFound
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	// Primary keys of operations, instances and kept.
	done, err := s.db.ExecContext(ctx, `INSERT INTO broker.kept (instance_id, worker, sealed, revision)
		SELECT i.id, $3, $4, $5 FROM broker.operations o JOIN broker.instances i ON i.id = o.instance_id
		WHERE o.id = $2 AND i.id = $1 AND `+unfinished+`
		ON CONFLICT (instance_id, worker) DO UPDATE SET sealed = excluded.sealed, revision = excluded.revision`,
		k.InstanceID, operationID, k.Name, k.Sealed, k.Revision)
	if err != nil {
		return wrap(ctx, "keep value", err)
	}
	n, err := done.RowsAffected()
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return wrap(ctx, "keep value", err)
}

// Kept returns the sealed value that is kept for a worker, or an empty one if nothing is kept. It returns ErrNotFound unless the
// operation is an unfinished one of the instance.
func (s *Store) Kept(ctx context.Context, instanceID, operationID, worker string) (Secret, error) {
	if !isStorable(instanceID, operationID) {
		return Secret{}, ErrNotFound
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	found := Secret{InstanceID: instanceID, Name: worker}
	// Primary keys of operations and kept.
	err := s.db.GetContext(ctx, &found, `SELECT coalesce(k.sealed, '') AS sealed, coalesce(k.revision, '') AS revision
		FROM broker.operations o LEFT JOIN broker.kept k ON k.instance_id = o.instance_id AND k.worker = $3
		WHERE o.instance_id = $1 AND o.id = $2 AND `+unfinished,
		instanceID, operationID, worker)
	return found, wrap(ctx, "read kept value", err)
}

// isStorable reports whether Postgres can store the ids unchanged. A value is bound to the exact id of the request.
func isStorable(ids ...string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return storable(id) != id })
}
