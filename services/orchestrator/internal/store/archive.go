package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/postgres"
)

// archiveLock is the advisory lock of the orchestrator that archives.
const archiveLock = 0x6b65620001

const (
	// archiveSQL moves operations that ended before a time, oldest first, with their requests and histories. It does not move operations of
	// unfinished orchestrations. It relies on operations_finished and on primary keys.
	archiveSQL = `
WITH old AS MATERIALIZED (
    SELECT o.id FROM orchestrator.operations o
    WHERE o.finished_at < $1 AND NOT EXISTS (
        SELECT FROM orchestrator.orchestration_members m JOIN orchestrator.orchestrations c ON c.id = m.orchestration_id
        WHERE m.operation_id = o.id AND c.state IN ('pending', 'in progress', 'retrying', 'paused', 'canceling'))
    ORDER BY o.finished_at LIMIT $2 FOR UPDATE OF o SKIP LOCKED
), h AS (
    DELETE FROM orchestrator.history h USING old WHERE h.operation_id = old.id RETURNING h.*
), r AS (
    DELETE FROM orchestrator.requests r USING old WHERE r.operation_id = old.id RETURNING r.*
), o AS (
    DELETE FROM orchestrator.operations o USING old WHERE o.id = old.id RETURNING o.*
), lines AS (
    SELECT h.operation_id, jsonb_agg(to_jsonb(h) ORDER BY h.cursor) AS history FROM h GROUP BY h.operation_id
)
INSERT INTO orchestrator.archive (operation_id, finished_at, operation, request, history)
SELECT o.id, o.finished_at, to_jsonb(o), to_jsonb(r) #- '{body,context,userId}', COALESCE(lines.history, '[]')
FROM o JOIN r ON r.operation_id = o.id LEFT JOIN lines ON lines.operation_id = o.id`
	// dropArchivedSQL relies on archive_finished.
	dropArchivedSQL = `
DELETE FROM orchestrator.archive WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM orchestrator.archive WHERE finished_at < $1 ORDER BY finished_at LIMIT $2))`
	// dropOrchestrationsSQL deletes ended orchestrations with their members, oldest first, unless one of their operations is not archived. It
	// relies on orchestrations_ended and orchestration_members_list.
	dropOrchestrationsSQL = `
WITH old AS MATERIALIZED (
    SELECT c.id FROM orchestrator.orchestrations c
    WHERE c.updated_at < $1 AND c.state IN ('succeeded', 'failed', 'canceled') AND NOT EXISTS (
        SELECT FROM orchestrator.orchestration_members m JOIN orchestrator.operations o ON o.id = m.operation_id WHERE m.orchestration_id = c.id)
    ORDER BY c.updated_at LIMIT $2 FOR UPDATE OF c SKIP LOCKED
), m AS (
    DELETE FROM orchestrator.orchestration_members m USING old WHERE m.orchestration_id = old.id
)
DELETE FROM orchestrator.orchestrations c USING old WHERE c.id = old.id`
	fromArchive = `
FROM orchestrator.archive a, jsonb_populate_record(NULL::orchestrator.operations, a.operation) o,
    jsonb_populate_record(NULL::orchestrator.requests, a.request) r`
	readArchivedSQL    = `SELECT` + rowColumns + fromArchive + ` WHERE a.operation_id = ANY($1::uuid[])`
	archivedSQL        = `SELECT operation_id::text FROM orchestrator.archive WHERE operation_id = ANY($1::uuid[])`
	archivedHistorySQL = `
SELECT ` + entryColumns + `
FROM jsonb_populate_recordset(NULL::orchestrator.history, (SELECT a.history FROM orchestrator.archive a WHERE a.operation_id = $1::uuid))
ORDER BY cursor`
)

// Archive moves up to limit operations that ended before a time to the archive, oldest first, and returns their number. It deletes their
// user ids. It does nothing while another orchestrator archives.
func (s *Store) Archive(ctx context.Context, before time.Time, limit int) (moved int64, err error) {
	return s.execArchive(ctx, archiveSQL, before, limit)
}

// DropArchived deletes up to limit archived operations that ended before a time, oldest first, and returns their number. It does nothing
// while another orchestrator archives.
func (s *Store) DropArchived(ctx context.Context, before time.Time, limit int) (removed int64, err error) {
	return s.execArchive(ctx, dropArchivedSQL, before, limit)
}

// DropOrchestrations deletes up to limit orchestrations that ended before a time with their members, oldest first, and returns their number. It
// does nothing while another orchestrator archives.
func (s *Store) DropOrchestrations(ctx context.Context, before time.Time, limit int) (removed int64, err error) {
	return s.execArchive(ctx, dropOrchestrationsSQL, before, limit)
}

// execArchive executes a statement unless another orchestrator holds archiveLock.
func (s *Store) execArchive(ctx context.Context, query string, args ...any) (n int64, err error) {
	err = postgres.InTx(ctx, s.read, func(tx *sqlx.Tx) error {
		n = 0
		var locked bool
		if err := tx.GetContext(ctx, &locked, `SELECT pg_try_advisory_xact_lock($1)`, archiveLock); err != nil || !locked {
			return err
		}
		result, err := tx.ExecContext(ctx, query, args...)
		if err != nil {
			return err
		}
		n, err = result.RowsAffected()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("archive operations: %w", err)
	}
	return n, nil
}

// Archived returns the ids of the operations that are archived.
func (t *Tx) Archived(ctx context.Context, ids []string) ([]string, error) {
	var list array
	for _, id := range ids {
		list.raw(id)
	}
	var found []string
	if err := t.tx.StmtxContext(ctx, t.s.archived).SelectContext(ctx, &found, &list); err != nil {
		return nil, fmt.Errorf("look for archived operations: %w", err)
	}
	return found, nil
}

// readArchived returns the operations that are archived.
func (s *Store) readArchived(ctx context.Context, ids *array) ([]*Row, error) {
	rows, err := s.read.QueryContext(ctx, readArchivedSQL, ids)
	found, err := readRows("read archived operations", rows, err)
	if err != nil {
		return nil, err
	}
	for _, r := range found {
		r.Archived = true
	}
	return found, nil
}
