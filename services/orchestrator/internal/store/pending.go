package store

import (
	"context"
	"database/sql"
	"fmt"
	"hash/fnv"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
)

const (
	// firstSQL selects operations o that are the first pending operation of their instance, of any type. It relies on
	// operations_instance.
	firstSQL = `o.arrived = (SELECT min(w.arrived) FROM orchestrator.operations w WHERE w.instance_id = o.instance_id AND w.state = 'pending')`
	// mayStartSQL selects the operations o of a queue q that may start, except some. It relies on operations_pending.
	mayStartSQL = `
FROM orchestrator.operations o JOIN orchestrator.instances n ON n.instance_id = o.instance_id
WHERE o.state = 'pending' AND (o.type, o.global_account, o.plan, o.region) = (q.type, q.global_account, q.plan, q.region)
    AND o.hold_id IS NULL AND n.running IS NULL AND NOT o.id = ANY($1::uuid[]) AND ` + firstSQL + `
ORDER BY o.arrived`
	// anyPendingSQL relies on operations_pending. The ORDER BY makes the planner use it instead of scanning the table.
	anyPendingSQL = `
SELECT (SELECT type FROM orchestrator.operations WHERE state = 'pending' AND hold_id IS NULL ORDER BY type, global_account, plan, region, arrived LIMIT 1)
    IS NOT NULL`
	// pendingQueuesSQL jumps from queue to queue in operations_pending, so that its cost depends on the number of queues, and not on the number
	// of operations that wait in them.
	pendingQueuesSQL = `
WITH RECURSIVE q AS (
    SELECT $4::text AS type, $5::text AS global_account, $6::text AS plan, $7::text AS region
    UNION ALL
    SELECT n.* FROM q, LATERAL (
        SELECT o.type, o.global_account, o.plan, o.region FROM orchestrator.operations o
        WHERE o.state = 'pending' AND o.type BETWEEN $2 AND $3 AND (o.type, o.global_account, o.plan, o.region) > (q.type, q.global_account, q.plan, q.region)
        ORDER BY o.type, o.global_account, o.plan, o.region LIMIT 1
    ) n
)
SELECT q.type, q.global_account, q.plan, q.region, f.arrived FROM q, LATERAL (SELECT o.arrived` + mayStartSQL + ` LIMIT 1) f
WHERE (q.type, q.global_account, q.plan, q.region) <> ($4, $5, $6, $7) LIMIT $8`
	// runningSQL relies on operations_in_progress or operations_unfinished.
	runningSQL = `
SELECT type, global_account, plan, region, count(*) FROM orchestrator.operations WHERE state = 'in progress' GROUP BY 1, 2, 3, 4`
	// pendingCountsSQL relies on operations_pending.
	pendingCountsSQL = `
SELECT type, global_account, plan, region, count(*) FROM orchestrator.operations WHERE state = 'pending' GROUP BY 1, 2, 3, 4`
	// startableCountsSQL relies on operations_pending and instances_pkey.
	startableCountsSQL = `
SELECT o.type, o.global_account, o.plan, o.region, count(*) FROM orchestrator.operations o
WHERE o.state = 'pending' AND o.hold_id IS NULL
    AND (SELECT n.running FROM orchestrator.instances n WHERE n.instance_id = o.instance_id) IS NULL GROUP BY 1, 2, 3, 4`
	// aheadSQL relies on operations_pkey and operations_pending.
	aheadSQL = `
SELECT m.id::text, m.type, m.global_account, m.plan, m.region, (SELECT count(*) FROM orchestrator.operations o
    WHERE o.state = 'pending' AND o.type = ANY(CASE WHEN m.type IN ('upgradeKyma', 'upgradeCluster') THEN ARRAY['upgradeKyma', 'upgradeCluster']
        ELSE ARRAY['provision', 'update', 'deprovision'] END)
    AND o.global_account = m.global_account AND o.arrived < m.arrived)
FROM orchestrator.operations m WHERE m.id = ANY($1::uuid[]) AND m.state = 'pending'`
	// takeSQL relies on operations_pending. It skips locked instances, which another orchestrator handles. The turns are in order already, so it needs
	// no sort, and locks no more instances than it returns.
	takeSQL = `
SELECT f.id::text, f.instance_id, q.type, q.global_account, q.plan, q.region
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::int4[]) WITH ORDINALITY AS q(type, global_account, plan, region, most, turn),
LATERAL (SELECT o.id, o.instance_id` + mayStartSQL + ` LIMIT q.most FOR UPDATE OF n SKIP LOCKED) f
ORDER BY q.turn LIMIT $7`
	// pendingOfSQL relies on operations_instance.
	pendingOfSQL = `
SELECT o.id::text, o.instance_id, o.type, o.global_account, o.plan, o.region
FROM orchestrator.operations o JOIN orchestrator.instances n ON n.instance_id = o.instance_id
WHERE o.state = 'pending' AND n.running IS NULL AND o.instance_id = ANY($1::text[])
ORDER BY o.arrived FOR UPDATE OF n SKIP LOCKED`
)

// Candidate is a pending operation whose instance is free and locked.
type Candidate struct {
	ID, InstanceID string
	Queue          limit.Queue
}

// AnyPending reports whether there are pending operations that are not held. Their instances may be busy.
func (s *Store) AnyPending(ctx context.Context) (found bool, err error) {
	if err := s.read.GetContext(ctx, &found, anyPendingSQL); err != nil {
		return false, fmt.Errorf("look for pending operations: %w", err)
	}
	return found, nil
}

// PendingQueues returns the queues with an operation that may start: it is not held, its instance is free, and it is the first pending operation of its
// instance, counting all types and held ones. The operations in except do not count.
func (t *Tx) PendingQueues(ctx context.Context, w limit.Window, except []string) ([]limit.Waiting, error) {
	low, high := event.Deprovision, event.Update // the types that are not upgrades, in the order of their names
	if w.Upgrades {
		low, high = event.UpgradeCluster, event.UpgradeKyma
	}
	return collect(ctx, t.tx, "find queues of pending operations", pendingQueuesSQL, []any{
		uuids(except), string(low), string(high), string(w.After.Type), w.After.GlobalAccount, w.After.Plan, w.After.Region, w.Most,
	}, func(rows *sql.Rows, w *limit.Waiting) error {
		return rows.Scan(&w.Type, &w.GlobalAccount, &w.Plan, &w.Region, &w.First)
	})
}

// Running returns the numbers of operations in progress.
func (t *Tx) Running(ctx context.Context) (map[limit.Queue]int, error) {
	return countQueues(ctx, t.tx, runningSQL)
}

func countQueues(ctx context.Context, db sqlx.QueryerContext, query string) (map[limit.Queue]int, error) {
	rows, err := db.QueryxContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("count operations: %w", err)
	}
	defer rows.Close()
	counts := map[limit.Queue]int{}
	for rows.Next() {
		var q limit.Queue
		var n int
		if err := rows.Scan(&q.Type, &q.GlobalAccount, &q.Plan, &q.Region, &n); err != nil {
			return nil, fmt.Errorf("count operations: %w", err)
		}
		counts[q] = n
	}
	return counts, rows.Err()
}

// Take returns at most limit operations that may start (see PendingQueues), turn by turn, and locks their instances. Within a queue they are in order
// of arrival.
func (t *Tx) Take(ctx context.Context, turns []limit.Turn, except []string, limit int) ([]Candidate, error) {
	var kinds, accounts, plans, regions, most array
	for _, turn := range turns {
		kinds.text(string(turn.Type))
		accounts.text(turn.GlobalAccount)
		plans.text(turn.Plan)
		regions.text(turn.Region)
		most.int(int64(turn.N))
	}
	return t.candidates(ctx, takeSQL, uuids(except), &kinds, &accounts, &plans, &regions, &most, limit)
}

// PendingOf returns all pending operations of the given instances that are free, in order of arrival, and locks the instances.
func (t *Tx) PendingOf(ctx context.Context, instanceIDs []string) ([]Candidate, error) {
	var list array
	for _, id := range instanceIDs {
		list.text(id)
	}
	return t.candidates(ctx, pendingOfSQL, &list)
}

// LimitUse returns the numbers of operations in progress, and of those that only limits or the moment before the start keep from starting.
func (s *Store) LimitUse(ctx context.Context) (running, waiting map[limit.Queue]int, err error) {
	err = census(ctx, s.read, func(tx *sqlx.Tx) (err error) {
		if running, err = countQueues(ctx, tx, runningSQL); err == nil {
			waiting, err = countQueues(ctx, tx, startableCountsSQL)
		}
		return err
	})
	return running, waiting, err
}

// Pending is a pending operation with its place in the order of arrival.
type Pending struct {
	ID    string
	Queue limit.Queue
	// Ahead is the number of pending operations of its global account that arrived before: upgrades, or all others.
	Ahead int
}

// Admission holds what the positions of pending operations depend on.
type Admission struct {
	Pending, Running map[limit.Queue]int
	Of               []Pending
}

// Admission returns the numbers of operations that are pending and in progress, and the places of some pending ones.
func (s *Store) Admission(ctx context.Context, ids []string) (a Admission, err error) {
	err = census(ctx, s.read, func(tx *sqlx.Tx) (err error) {
		a = Admission{}
		if a.Running, err = countQueues(ctx, tx, runningSQL); err != nil {
			return err
		}
		if a.Pending, err = countQueues(ctx, tx, pendingCountsSQL); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, aheadSQL, uuids(ids))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var p Pending
			if err := rows.Scan(&p.ID, &p.Queue.Type, &p.Queue.GlobalAccount, &p.Queue.Plan, &p.Queue.Region, &p.Ahead); err != nil {
				return err
			}
			a.Of = append(a.Of, p)
		}
		return rows.Err()
	})
	if err != nil {
		return a, fmt.Errorf("find the places of pending operations: %w", err)
	}
	return a, nil
}

func uuids(ids []string) *array {
	var list array
	for _, id := range ids {
		list.raw(id)
	}
	return &list
}

func (t *Tx) candidates(ctx context.Context, query string, args ...any) ([]Candidate, error) {
	return collect(ctx, t.tx, "find pending operations", query, args, func(rows *sql.Rows, c *Candidate) error {
		return rows.Scan(&c.ID, &c.InstanceID, &c.Queue.Type, &c.Queue.GlobalAccount, &c.Queue.Plan, &c.Queue.Region)
	})
}

// LockAdmission serializes admissions with limits among all orchestrators until the transaction ends.
func (t *Tx) LockAdmission(ctx context.Context) error {
	key := fnv.New64a()
	_, _ = key.Write([]byte("keb admission")) // a hash does not fail
	if _, err := t.tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(key.Sum64())); err != nil {
		return fmt.Errorf("lock the admission: %w", err)
	}
	return nil
}
