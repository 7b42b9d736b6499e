package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/postgres"
)

// Found is a runtime that matches a search.
type Found struct {
	InstanceID string `db:"instance_id"`
	// Matched is the property that begins with the text: instance, runtime, shoot, subaccount, account or name.
	Matched string `db:"-"`
	// Name is empty for a removed instance.
	Name         string       `db:"name"`
	ShootName    string       `db:"shoot_name"`
	RuntimeID    string       `db:"runtime_id"`
	Plan         string       `db:"plan_name"`
	Region       string       `db:"region"`
	Account      string       `db:"global_account_id"`
	Subaccount   string       `db:"subaccount_id"`
	State        RuntimeState `db:"state"`
	CreatedAt    time.Time    `db:"created_at"`
	ExpiredAtRaw sql.NullTime `db:"expired_at"`
}

// ExpiredAt returns when the instance expired; zero if it has not expired.
func (f *Found) ExpiredAt() time.Time { return f.ExpiredAtRaw.Time }

// searched are the properties of a search, each with the column that an index covers. The more specific ones are first.
var searched = []struct{ property, table, id, column, also string }{
	{"instance", "broker.runtimes", "instance_id", "instance_id", ""},
	{"runtime", "broker.runtimes", "instance_id", "runtime_id", " AND runtime_id <> ''"},
	{"shoot", "broker.runtimes", "instance_id", "shoot_name", ""},
	{"name", "broker.instances", "id", "lower(runtime ->> 'name')", ""},
	{"subaccount", "broker.runtimes", "instance_id", "subaccount_id", ""},
	{"account", "broker.runtimes", "instance_id", "global_account_id", ""},
}

// findSQL returns the statement of a search. $1 is the pattern, $2 the pattern of names, $3 the maximum number of runtimes by property. It
// relies on runtimes_instance, runtimes_runtime, runtimes_shoot, instances_runtime_name, runtimes_subaccount and runtimes_account, each read
// in its order, so that an exact match is first.
func findSQL() string {
	parts := make([]string, len(searched))
	for i, s := range searched {
		pattern := "$1"
		if s.property == "name" {
			pattern = "$2"
		}
		parts[i] = fmt.Sprintf(`(SELECT '%s' AS matched, %s AS instance_id FROM %s WHERE %s LIKE %s%s ORDER BY %s USING ~<~ LIMIT $3)`,
			s.property, s.id, s.table, s.column, pattern, s.also, s.column)
	}
	return strings.Join(parts, " UNION ALL ")
}

// Primary keys.
const foundRows = `SELECT r.instance_id, coalesce(i.runtime ->> 'name', '') AS name, r.shoot_name, r.runtime_id, r.plan_name, r.region,
		r.global_account_id, r.subaccount_id, r.state, r.created_at, r.expired_at
	FROM broker.runtimes r LEFT JOIN broker.instances i ON i.id = r.instance_id WHERE r.instance_id = ANY ($1)`

// Find returns at most limit runtimes of which a property begins with a text, and whether there are more. Names ignore case.
func (s *Store) Find(ctx context.Context, text string, limit int) (found []Found, more bool, err error) {
	text = storable(text)
	pattern := func(text string) string {
		return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(text) + "%"
	}
	err = s.snapshot(ctx, "find runtimes", func(ctx context.Context, tx *sqlx.Tx) error {
		var matches []struct {
			Matched    string `db:"matched"`
			InstanceID string `db:"instance_id"`
		}
		if err := tx.SelectContext(ctx, &matches, findSQL(), pattern(text), pattern(strings.ToLower(text)), limit+1); err != nil {
			return err
		}
		matched := map[string]string{}
		var ids []string
		for _, m := range matches {
			if _, known := matched[m.InstanceID]; known {
				continue
			}
			if len(ids) == limit {
				more = true
				break
			}
			matched[m.InstanceID] = m.Matched
			ids = append(ids, m.InstanceID)
		}
		if len(ids) == 0 {
			return nil
		}
		if err := tx.SelectContext(ctx, &found, foundRows, postgres.Array(ids)); err != nil {
			return err
		}
		for i := range found {
			found[i].Matched = matched[found[i].InstanceID]
		}
		slices.SortFunc(found, func(a, b Found) int { return slices.Index(ids, a.InstanceID) - slices.Index(ids, b.InstanceID) })
		return nil
	})
	return found, more, err
}

// RuntimeDetail is a runtime with everything that is known of its instance, without credentials.
type RuntimeDetail struct {
	Runtime
	// DashboardURL, MaintenanceVersion and Sent are empty for a removed instance.
	DashboardURL, MaintenanceVersion string
	// Sent are the parameters as sent; Effective also contains all defaults.
	Sent []byte
	// Bindings are the newest ones, without their access.
	Bindings []Binding
}

// maxBindings is the maximum number of bindings in a RuntimeDetail.
const maxBindings = 100

// RuntimeDetail returns the details of a runtime. It returns ErrNotFound.
func (s *Store) RuntimeDetail(ctx context.Context, instanceID string) (*RuntimeDetail, error) {
	instanceID = storable(instanceID)
	var out RuntimeDetail
	err := s.snapshot(ctx, "read runtime", func(ctx context.Context, tx *sqlx.Tx) error {
		list, err := runtimes(ctx, tx, []string{instanceID}, false)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return ErrNotFound
		}
		out.Runtime = list[0]
		var rows []struct {
			Parameters   string `db:"parameters"`
			DashboardURL string `db:"dashboard_url"`
			Maintenance  string `db:"maintenance_version"`
		}
		// Primary key.
		err = tx.SelectContext(ctx, &rows, `SELECT parameters, dashboard_url, maintenance_version FROM broker.instances WHERE id = $1`, instanceID)
		if err != nil || len(rows) == 0 {
			return err
		}
		out.Sent, out.DashboardURL, out.MaintenanceVersion = []byte(rows[0].Parameters), rows[0].DashboardURL, rows[0].Maintenance
		var bindings []bindingRow
		// Primary key. The kubeconfig is not read.
		err = tx.SelectContext(ctx, &bindings, `SELECT instance_id, id, subscription, runtime_id, expiration_seconds, predecessor, created_at, expires_at,
				made_at, '' AS sealed, '' AS revision, revoked_at, claim, claimed_until, due_at
			FROM broker.bindings WHERE instance_id = $1 ORDER BY created_at DESC, id LIMIT $2`, instanceID, maxBindings)
		for i := range bindings {
			out.Bindings = append(out.Bindings, *bindings[i].binding())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}
