package store

import (
	"context"
	"slices"
)

// Keep puts a sealed value of a worker, which is the name of the secret, in place of the one that is kept. Unless the operation is an
// unfinished one of the instance it keeps nothing and returns ErrNotFound.
func (s *Store) Keep(ctx context.Context, operationID string, k Secret) error {
	if !isStorable(k.InstanceID, operationID) {
		return ErrNotFound
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	// Primary keys of operations, instances and kept.
	done, err := s.db.ExecContext(ctx, `INSERT INTO broker.kept (instance_id, worker, sealed, revision)
		SELECT i.id, $3, $4, $5 FROM broker.operations o JOIN broker.instances i ON i.id = o.instance_id
		WHERE o.id = $2 AND i.id = $1 AND o.state IN ('pending', 'in progress')
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

// Kept reads the sealed value that is kept of an instance for a worker, for an unfinished operation of the instance; any other is
// ErrNotFound. The value is empty if nothing is kept.
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
		WHERE o.instance_id = $1 AND o.id = $2 AND o.state IN ('pending', 'in progress')`,
		instanceID, operationID, worker)
	return found, wrap(ctx, "read kept value", err)
}

// isStorable reports whether Postgres can have ids: a value is bound to the id that was asked for, and not to what can be stored of it.
func isStorable(ids ...string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return storable(id) != id })
}
