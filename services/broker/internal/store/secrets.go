package store

import (
	"context"
	"fmt"
)

// SecretKind is the purpose of a sealed value.
type SecretKind string

// The kinds of sealed values: the credentials of instances, the new credentials of updates, the kubeconfigs of bindings, and the
// values that the broker keeps for workers.
const (
	SecretCredentials SecretKind = "credentials"
	SecretUpdates     SecretKind = "updates"
	SecretBindings    SecretKind = "bindings"
	SecretKept        SecretKind = "kept"
)

// SecretKinds lists all kinds.
func SecretKinds() []SecretKind {
	return []SecretKind{SecretCredentials, SecretUpdates, SecretBindings, SecretKept}
}

// Secret is a sealed value with its place. Name is the name of the credentials, the id of the binding, or the worker.
type Secret struct {
	InstanceID string `db:"instance_id"`
	Name       string `db:"name"`
	Sealed     string `db:"sealed"`
	// Revision changes with each new value. It is empty for values that were sealed before revisions existed.
	Revision string `db:"revision"`
}

// Credentials are credentials of an instance that were sealed together.
type Credentials struct {
	// Revision is the revision that they are bound to.
	Revision string
	// Sealed holds the values, by name.
	Sealed map[string]string
}

// secretStatements rely on the primary key of each table. If whole is set, list reads only the beginning of each value, which
// contains the id of its key: kept values are large.
var secretStatements = map[SecretKind]struct{ list, whole, replace string }{
	SecretCredentials: {
		list: `SELECT instance_id, name, sealed, revision FROM broker.credentials
			WHERE (instance_id, name) > ($1, $2) ORDER BY instance_id, name LIMIT $3`,
		replace: `UPDATE broker.credentials SET sealed = $4, revision = $6 WHERE instance_id = $1 AND name = $2 AND sealed = $3 AND revision = $5`,
	},
	SecretUpdates: {
		list: `SELECT u.instance_id, c.key AS name, c.value AS sealed, u.credentials_revision AS revision
			FROM broker.updates u, json_each_text(u.credentials) c
			WHERE u.instance_id >= $1 AND (u.instance_id, c.key) > ($1, $2) ORDER BY u.instance_id, c.key LIMIT $3`,
		replace: `UPDATE broker.updates SET credentials = (credentials::jsonb || jsonb_build_object($2::text, $4::text))::json
			WHERE instance_id = $1 AND credentials ->> $2 = $3 AND credentials_revision = $5 AND credentials_revision = $6`,
	},
	SecretBindings: {
		list: `SELECT instance_id, id AS name, sealed, revision FROM broker.bindings
			WHERE (instance_id, id) > ($1, $2) AND sealed <> '' ORDER BY instance_id, id LIMIT $3`,
		replace: `UPDATE broker.bindings SET sealed = $4, revision = $6 WHERE instance_id = $1 AND id = $2 AND sealed = $3 AND revision = $5`,
	},
	SecretKept: {
		list: `SELECT instance_id, worker AS name, substr(sealed, 1, 100) AS sealed, revision FROM broker.kept
			WHERE (instance_id, worker) > ($1, $2) ORDER BY instance_id, worker LIMIT $3`,
		whole:   `SELECT instance_id, worker AS name, sealed, revision FROM broker.kept WHERE instance_id = $1 AND worker = $2`,
		replace: `UPDATE broker.kept SET sealed = $4, revision = $6 WHERE instance_id = $1 AND worker = $2 AND sealed = $3 AND revision = $5`,
	},
}

// Secrets lists up to limit sealed values of a kind after a given one, ordered by instance and name. The zero Secret precedes
// all. It reads only the beginning of large values, see Secret.
func (s *Store) Secrets(ctx context.Context, kind SecretKind, after Secret, limit int) ([]Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var found []Secret
	err := s.db.SelectContext(ctx, &found, secretStatements[kind].list, after.InstanceID, after.Name, limit)
	return found, wrap(ctx, fmt.Sprintf("list sealed %s", kind), err)
}

// Secret returns the whole of a value that Secrets listed. It returns ErrNotFound.
func (s *Store) Secret(ctx context.Context, kind SecretKind, listed Secret) (Secret, error) {
	query := secretStatements[kind].whole
	if query == "" {
		return listed, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var found Secret
	err := s.db.GetContext(ctx, &found, query, listed.InstanceID, listed.Name)
	return found, wrap(ctx, fmt.Sprintf("read sealed %s", kind), err)
}

// ReplaceSecret replaces a sealed value and its revision. It does nothing if the value has changed since it was read. The values of
// an update share a revision, which stays.
func (s *Store) ReplaceSecret(ctx context.Context, kind SecretKind, old Secret, sealed, revision string) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_, err := s.db.ExecContext(ctx, secretStatements[kind].replace, old.InstanceID, old.Name, old.Sealed, sealed, old.Revision, revision)
	return wrap(ctx, fmt.Sprintf("seal %s of instance %s anew", kind, old.InstanceID), err)
}
