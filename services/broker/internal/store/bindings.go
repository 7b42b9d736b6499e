package store

import (
	"context"
	"database/sql"
	"time"
)

// Binding is a service binding. It holds no secret in the clear.
type Binding struct {
	InstanceID, ID string
	// Account and RuntimeID are the address of its access. They are those of the instance when the binding was reserved.
	Account, RuntimeID string
	// Expiration is the requested lifetime, in whole seconds.
	Expiration time.Duration
	// Predecessor is the binding that a rotation replaces. It is empty for all other bindings.
	Predecessor string
	CreatedAt   time.Time
	// ExpiresAt is the end of the access. Before the access is created, it is the expected end.
	ExpiresAt time.Time
	// MadeAt is when the access was created; zero until then.
	MadeAt time.Time
	// Sealed is the kubeconfig. It is empty until the access is created, and after the revocation.
	Sealed string
	// Revision is the revision that Sealed is bound to.
	Revision string
	// RevokedAt is the time of the revocation; zero means not revoked. The access may still exist.
	RevokedAt time.Time
	// Claim identifies the process that works on the access until ClaimedUntil. DueAt is when the clean-up checks the binding.
	Claim        string
	ClaimedUntil time.Time
	DueAt        time.Time
}

// Usable reports whether the binding's access is created and has not ended.
func (b *Binding) Usable(now time.Time) bool {
	return !b.MadeAt.IsZero() && b.RevokedAt.IsZero() && now.Before(b.ExpiresAt)
}

// Claimed reports whether a process is working on the binding's access.
func (b *Binding) Claimed(now time.Time) bool { return b.Claim != "" && now.Before(b.ClaimedUntil) }

type bindingRow struct {
	InstanceID   string       `db:"instance_id"`
	ID           string       `db:"id"`
	Account      string       `db:"subscription"`
	RuntimeID    string       `db:"runtime_id"`
	Expiration   int64        `db:"expiration_seconds"`
	Predecessor  string       `db:"predecessor"`
	CreatedAt    time.Time    `db:"created_at"`
	ExpiresAt    time.Time    `db:"expires_at"`
	MadeAt       sql.NullTime `db:"made_at"`
	Sealed       string       `db:"sealed"`
	Revision     string       `db:"revision"`
	RevokedAt    sql.NullTime `db:"revoked_at"`
	Claim        string       `db:"claim"`
	ClaimedUntil time.Time    `db:"claimed_until"`
	DueAt        time.Time    `db:"due_at"`
}

func (r *bindingRow) binding() *Binding {
	return &Binding{
		InstanceID: r.InstanceID, ID: r.ID, Account: r.Account, RuntimeID: r.RuntimeID,
		Expiration: time.Duration(r.Expiration) * time.Second, Predecessor: r.Predecessor, CreatedAt: r.CreatedAt,
		ExpiresAt: r.ExpiresAt, MadeAt: r.MadeAt.Time, Sealed: r.Sealed, Revision: r.Revision, RevokedAt: r.RevokedAt.Time, Claim: r.Claim,
		ClaimedUntil: r.ClaimedUntil, DueAt: r.DueAt,
	}
}

const bindingColumns = `instance_id, id, subscription, runtime_id, expiration_seconds, predecessor, created_at, expires_at,
	made_at, sealed, revision, revoked_at, claim, claimed_until, due_at`

// Primary key.
const bindingByID = `SELECT ` + bindingColumns + ` FROM broker.bindings WHERE instance_id = $1 AND id = $2`

// Binding returns a binding. It returns ErrNotFound.
func (s *Store) Binding(ctx context.Context, instanceID, id string) (*Binding, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var row bindingRow
	if err := s.db.GetContext(ctx, &row, bindingByID, instanceID, id); err != nil {
		return nil, wrap(ctx, "read binding", err)
	}
	return row.binding(), nil
}

// BindingRemoved reports whether such a binding was removed before.
func (s *Store) BindingRemoved(ctx context.Context, instanceID, id string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var removed bool
	err := s.db.GetContext(ctx, &removed,
		`SELECT EXISTS (SELECT FROM broker.removed_bindings WHERE instance_id = $1 AND id = $2)`, instanceID, id)
	return removed, wrap(ctx, "look up removed binding", err)
}

// SealedCredential returns one of the sealed credentials of an instance, for use by the broker. It returns ErrNotFound.
func (s *Store) SealedCredential(ctx context.Context, instanceID, name string) (Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var sealed Secret
	err := s.db.GetContext(ctx, &sealed, `SELECT instance_id, name, sealed, revision FROM broker.credentials WHERE instance_id = $1 AND name = $2`, instanceID, name)
	return sealed, wrap(ctx, "read credentials", err)
}

// RuntimeID returns the id of an instance's runtime; empty if there is none. It returns ErrNotFound.
func (s *Store) RuntimeID(ctx context.Context, instanceID string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var id string
	err := s.db.GetContext(ctx, &id, runtimeIDOf, instanceID)
	return id, wrap(ctx, "read runtime id", err)
}

const runtimeIDOf = `SELECT runtime_id FROM broker.instances WHERE id = $1`

// RuntimeID is like Store.RuntimeID.
func (t *Tx) RuntimeID(ctx context.Context, instanceID string) (string, error) {
	var id string
	err := t.tx.GetContext(ctx, &id, runtimeIDOf, instanceID)
	return id, wrap(ctx, "read runtime id", err)
}

// Binding locks and returns a binding until the transaction ends. It returns ErrNotFound.
func (t *Tx) Binding(ctx context.Context, instanceID, id string) (*Binding, error) {
	var row bindingRow
	if err := t.tx.GetContext(ctx, &row, bindingByID+` FOR UPDATE`, instanceID, id); err != nil {
		return nil, wrap(ctx, "read binding", err)
	}
	return row.binding(), nil
}

// OtherBindings counts the other unexpired bindings of an instance, including those that a process is creating. The caller must
// hold the lock of the instance.
func (t *Tx) OtherBindings(ctx context.Context, instanceID, id string, now time.Time) (int, error) {
	var n int
	err := t.tx.GetContext(ctx, &n, `SELECT count(*) FROM broker.bindings WHERE instance_id = $1 AND id <> $2
		AND revoked_at IS NULL AND expires_at > $3 AND (made_at IS NOT NULL OR claim <> '' AND claimed_until > $3)`, instanceID, id, now)
	return n, wrap(ctx, "count bindings", err)
}

// ReserveBinding inserts a binding whose access does not exist yet, or replaces one that was never finished. The caller must
// hold the locks of the instance and of an existing binding.
func (t *Tx) ReserveBinding(ctx context.Context, b *Binding) error {
	_, err := t.tx.ExecContext(ctx, `INSERT INTO broker.bindings (instance_id, id, subscription, runtime_id, expiration_seconds,
			predecessor, created_at, expires_at, claim, claimed_until, due_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
		ON CONFLICT (instance_id, id) DO UPDATE SET subscription = excluded.subscription, runtime_id = excluded.runtime_id,
			expiration_seconds = excluded.expiration_seconds, predecessor = excluded.predecessor,
			created_at = excluded.created_at, expires_at = excluded.expires_at, revoked_at = NULL, claim = excluded.claim,
			claimed_until = excluded.claimed_until, due_at = excluded.due_at`,
		b.InstanceID, b.ID, b.Account, b.RuntimeID, int64(b.Expiration/time.Second), b.Predecessor, b.CreatedAt, b.ExpiresAt,
		b.Claim, b.ClaimedUntil, b.DueAt)
	if err != nil {
		return wrap(ctx, "reserve binding", err)
	}
	_, err = t.tx.ExecContext(ctx, `DELETE FROM broker.removed_bindings WHERE instance_id = $1 AND id = $2`, b.InstanceID, b.ID)
	return wrap(ctx, "reserve binding", err)
}

// RevokeBinding revokes a binding and deletes its kubeconfig. The caller then removes the access.
func (t *Tx) RevokeBinding(ctx context.Context, b *Binding, now time.Time) error {
	_, err := t.tx.ExecContext(ctx, `UPDATE broker.bindings SET revoked_at = coalesce(revoked_at, $3), sealed = '',
			claim = $4, claimed_until = $5, due_at = $6 WHERE instance_id = $1 AND id = $2`,
		b.InstanceID, b.ID, now, b.Claim, b.ClaimedUntil, b.DueAt)
	return wrap(ctx, "revoke binding", err)
}

// RevokeBindings revokes all bindings of an instance and deletes their kubeconfigs; the clean-up removes their access. The caller
// must hold the lock of the instance. It also revokes a binding that is being created, which is then not finished.
func (t *Tx) RevokeBindings(ctx context.Context, instanceID string, now time.Time) error {
	_, err := t.tx.ExecContext(ctx, `UPDATE broker.bindings SET revoked_at = $2, sealed = '',
			due_at = CASE WHEN claim <> '' AND claimed_until > $2 THEN due_at ELSE $2 END
		WHERE instance_id = $1 AND revoked_at IS NULL`, instanceID, now)
	return wrap(ctx, "revoke bindings", err)
}

// Bound reports whether an instance has bindings that were not revoked before a time.
func (t *Tx) Bound(ctx context.Context, instanceID string, since time.Time) (bool, error) {
	var bound bool
	// Primary key.
	err := t.tx.GetContext(ctx, &bound, `SELECT EXISTS (SELECT FROM broker.bindings
		WHERE instance_id = $1 AND (revoked_at IS NULL OR revoked_at > $2))`, instanceID, since)
	return bound, wrap(ctx, "look up bindings", err)
}

// FinishBinding stores the created access of a reserved binding. It returns false if another process has claimed the binding, or
// if the binding was revoked.
func (s *Store) FinishBinding(ctx context.Context, b *Binding) (bool, error) {
	return s.changed(ctx, "finish binding", `UPDATE broker.bindings SET made_at = $4, sealed = $5, expires_at = $6, due_at = $6,
			claim = '', claimed_until = $4, revision = $7
		WHERE instance_id = $1 AND id = $2 AND claim = $3 AND revoked_at IS NULL AND made_at IS NULL`,
		b.InstanceID, b.ID, b.Claim, b.MadeAt, b.Sealed, b.ExpiresAt, b.Revision)
}

// ReleaseBinding releases a claim; the clean-up checks the binding at due.
func (s *Store) ReleaseBinding(ctx context.Context, b *Binding, now, due time.Time) error {
	return s.exec(ctx, "release binding", `UPDATE broker.bindings SET claim = '', claimed_until = $4, due_at = $5
		WHERE instance_id = $1 AND id = $2 AND claim = $3`, b.InstanceID, b.ID, b.Claim, now, due)
}

// RemoveBinding deletes a binding whose access was removed under a claim, and reports whether it did.
func (s *Store) RemoveBinding(ctx context.Context, b *Binding, now time.Time) (bool, error) {
	var removed int64
	err := s.InTx(ctx, func(ctx context.Context, tx *Tx) error {
		// removed_bindings refers to the instance, and every transaction locks an instance before its bindings.
		_, err := tx.tx.ExecContext(ctx, `SELECT FROM broker.instances WHERE id = $1 FOR KEY SHARE`, b.InstanceID)
		if err != nil {
			return wrap(ctx, "remove binding", err)
		}
		// If the instance is gone, so is the binding.
		res, err := tx.tx.ExecContext(ctx, `WITH gone AS (
				DELETE FROM broker.bindings WHERE instance_id = $1 AND id = $2 AND claim = $3 RETURNING instance_id, id)
			INSERT INTO broker.removed_bindings (instance_id, id, removed_at) SELECT instance_id, id, $4 FROM gone
				ON CONFLICT (instance_id, id) DO UPDATE SET removed_at = excluded.removed_at`,
			b.InstanceID, b.ID, b.Claim, now)
		if err != nil {
			return wrap(ctx, "remove binding", err)
		}
		removed, err = res.RowsAffected()
		return wrap(ctx, "remove binding", err)
	})
	return removed > 0, err
}

// ClaimDueBindings revokes and claims at most limit bindings that are due for removal, and returns them. Concurrent processes
// get different bindings.
func (s *Store) ClaimDueBindings(ctx context.Context, claim string, now, until, due time.Time, limit int) ([]*Binding, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var rows []bindingRow
	// Index bindings_due.
	err := s.db.SelectContext(ctx, &rows, `UPDATE broker.bindings b SET revoked_at = coalesce(b.revoked_at, $2), sealed = '',
			claim = $1, claimed_until = $3, due_at = $4
		FROM (SELECT instance_id, id FROM broker.bindings WHERE due_at <= $2 AND (claim = '' OR claimed_until <= $2)
			ORDER BY due_at LIMIT $5 FOR UPDATE SKIP LOCKED) v
		WHERE b.instance_id = v.instance_id AND b.id = v.id
		RETURNING b.instance_id, b.id, b.subscription, b.runtime_id, b.expiration_seconds, b.predecessor, b.created_at,
			b.expires_at, b.made_at, b.sealed, b.revision, b.revoked_at, b.claim, b.claimed_until, b.due_at`, claim, now, until, due, limit)
	if err != nil {
		return nil, wrap(ctx, "claim due bindings", err)
	}
	out := make([]*Binding, len(rows))
	for i := range rows {
		out[i] = rows[i].binding()
	}
	return out, nil
}

// PurgeRemovedBindings deletes the records of bindings that were removed before a time.
func (s *Store) PurgeRemovedBindings(ctx context.Context, before time.Time) error {
	// Index removed_bindings_removed.
	return s.exec(ctx, "purge removed bindings", `DELETE FROM broker.removed_bindings WHERE removed_at < $1`, before)
}

// changed runs a statement and reports whether it changed a row.
func (s *Store) changed(ctx context.Context, operation, statement string, args ...any) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	res, err := s.db.ExecContext(ctx, statement, args...)
	if err != nil {
		return false, wrap(ctx, operation, err)
	}
	n, err := res.RowsAffected()
	return n > 0, wrap(ctx, operation, err)
}
