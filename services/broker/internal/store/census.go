package store

import (
	"context"
	"strconv"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/postgres"
)

// LargestAccounts is the number of global accounts in a census.
const LargestAccounts = 16

const (
	// existing selects the rows of existing instances in the list of runtimes.
	existing = `state NOT IN ('', 'deprovisioned', 'deprovisionincomplete')`
	// runtimesSQL relies on the index runtimes_plan, which covers it.
	runtimesSQL = `SELECT plan_name AS plan, state, count(*) AS count FROM broker.runtimes WHERE ` + existing + ` GROUP BY plan_name, state`
	// accountsSQL relies on the index runtimes_account for the order; the rows are narrow.
	accountsSQL = `
WITH accounts AS (
    SELECT global_account_id, count(*) AS count FROM broker.runtimes WHERE ` + existing + ` AND global_account_id <> '' GROUP BY global_account_id
)
SELECT global_account_id AS id, count, (SELECT count(*) FROM accounts) AS accounts FROM accounts ORDER BY count DESC, global_account_id LIMIT $1`
	// onlyIndexes forces index scans: the table can contain ten times as many ended operations.
	onlyIndexes = `SET LOCAL enable_seqscan = off`
	// unfinishedSQL relies on the index operations_unfinished and on the primary key of the list of runtimes.
	unfinishedSQL = `
SELECT o.type, o.state, coalesce((SELECT r.plan_name FROM broker.runtimes r WHERE r.instance_id = o.instance_id), '') AS plan, count(*) AS count
FROM broker.operations o WHERE o.state IN ('pending', 'in progress') GROUP BY o.type, o.state, plan`
	// boundSQL reads all bindings: an instance has only a few.
	boundSQL = `
SELECT coalesce(r.plan_name, '') AS plan, count(*) AS count
FROM broker.bindings b LEFT JOIN broker.runtimes r ON r.instance_id = b.instance_id
WHERE b.expires_at > $1 AND b.revoked_at IS NULL AND b.made_at IS NOT NULL GROUP BY r.plan_name`
	licensesSQL = `
SELECT coalesce(context ->> 'licenseType', '') AS license, count(*) AS count FROM broker.instances WHERE deleted_at IS NULL
GROUP BY context ->> 'licenseType'`
)

// Count is the number of objects in a group. The group determines which fields are set.
type Count struct {
	Plan    string `db:"plan"`
	Type    string `db:"type"`
	State   string `db:"state"`
	License string `db:"license"`
	Count   int    `db:"count"`
}

// Account is the number of instances of a global account.
type Account struct {
	ID    string `db:"id"`
	Count int    `db:"count"`
	// Accounts is the number of all global accounts.
	Accounts int `db:"accounts"`
}

// Census holds the numbers of existing objects.
type Census struct {
	// Runtimes are the runtimes that are not deleted, by plan and state.
	Runtimes []Count
	// Accounts are the largest global accounts in descending order.
	Accounts []Account
	// Operations are the unfinished operations, by type, state and plan.
	Operations []Count
	// Bindings are the usable bindings, by plan.
	Bindings []Count
}

// Census counts the existing objects. Ended operations do not slow it down.
func (s *Store) Census(ctx context.Context, now time.Time) (Census, error) {
	var c Census
	err := s.count(ctx, func(tx *sqlx.Tx) error {
		c = Census{}
		if err := tx.SelectContext(ctx, &c.Runtimes, runtimesSQL); err != nil {
			return err
		}
		if err := tx.SelectContext(ctx, &c.Accounts, accountsSQL, LargestAccounts); err != nil {
			return err
		}
		if err := tx.SelectContext(ctx, &c.Bindings, boundSQL, now); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, onlyIndexes); err != nil {
			return err
		}
		return tx.SelectContext(ctx, &c.Operations, unfinishedSQL)
	})
	return c, wrap(ctx, "count instances", err)
}

// Licenses counts the existing instances by the license type of their context. It reads all instances.
func (s *Store) Licenses(ctx context.Context) ([]Count, error) {
	var found []Count
	err := s.count(ctx, func(tx *sqlx.Tx) error { return tx.SelectContext(ctx, &found, licensesSQL) })
	return found, wrap(ctx, "count license types", err)
}

// count runs f in a transaction. The server cancels its statements when ctx ends.
func (s *Store) count(ctx context.Context, f func(tx *sqlx.Tx) error) error {
	limit := s.timeout
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end))
	}
	return postgres.InTx(ctx, s.db, func(tx *sqlx.Tx) error {
		_, err := tx.ExecContext(ctx, `SELECT set_config('jit', 'off', true), set_config('statement_timeout', $1, true)`,
			strconv.FormatInt(max(1, limit.Milliseconds()), 10))
		if err != nil {
			return err
		}
		return f(tx)
	})
}
