package store

import (
	"context"
	"strconv"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/postgres"
)

// LargestAccounts is how many global accounts a census names.
const LargestAccounts = 16

const (
	// there is the condition on rows of the list of runtimes whose instances are not deleted.
	there = `state NOT IN ('', 'deprovisioned', 'deprovisionincomplete')`
	// runtimesSQL relies on runtimes_plan, which has all that it needs.
	runtimesSQL = `SELECT plan_name AS plan, state, count(*) AS count FROM broker.runtimes WHERE ` + there + ` GROUP BY plan_name, state`
	// accountsSQL relies on runtimes_account for the order; the rows are narrow.
	accountsSQL = `
WITH accounts AS (
    SELECT global_account_id, count(*) AS count FROM broker.runtimes WHERE ` + there + ` AND global_account_id <> '' GROUP BY global_account_id
)
SELECT global_account_id AS id, count, (SELECT count(*) FROM accounts) AS accounts FROM accounts ORDER BY count DESC, global_account_id LIMIT $1`
	// onlyIndexes is for a table that may hold ten times as many operations that have ended.
	onlyIndexes = `SET LOCAL enable_seqscan = off`
	// unfinishedSQL relies on operations_unfinished, and on the primary key of the list of runtimes.
	unfinishedSQL = `
SELECT o.type, o.state, coalesce((SELECT r.plan_name FROM broker.runtimes r WHERE r.instance_id = o.instance_id), '') AS plan, count(*) AS count
FROM broker.operations o WHERE o.state IN ('pending', 'in progress') GROUP BY o.type, o.state, plan`
	// boundSQL reads the bindings, of which an instance has a few at most.
	boundSQL = `
SELECT coalesce(r.plan_name, '') AS plan, count(*) AS count
FROM broker.bindings b LEFT JOIN broker.runtimes r ON r.instance_id = b.instance_id
WHERE b.expires_at > $1 AND b.revoked_at IS NULL AND b.made_at IS NOT NULL GROUP BY r.plan_name`
	licensesSQL = `
SELECT coalesce(context ->> 'licenseType', '') AS license, count(*) AS count FROM broker.instances WHERE deleted_at IS NULL
GROUP BY context ->> 'licenseType'`
)

// Count is how many there are of something; which fields are set depends on of what.
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

// Census counts what there is.
type Census struct {
	// Runtimes are those that are not deleted, by plan and state.
	Runtimes []Count
	// Accounts are the largest global accounts, the largest first.
	Accounts []Account
	// Operations are those that have not ended, by type, state and plan.
	Operations []Count
	// Bindings are those that can be used, by plan.
	Bindings []Count
}

// Census counts what there is at a time. What has ended costs nothing.
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

// Licenses counts the instances that are not deleted by the license type of their context. It reads all of them.
func (s *Store) Licenses(ctx context.Context) ([]Count, error) {
	var found []Count
	err := s.count(ctx, func(tx *sqlx.Tx) error { return tx.SelectContext(ctx, &found, licensesSQL) })
	return found, wrap(ctx, "count license types", err)
}

// count runs f in a transaction whose statements the server ends when ctx does.
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
