package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

const (
	// unpublishedSQL scans operations_unfinished, and the part of operations_finished since $1. Few rows have facts_after.
	unpublishedSQL = `
SELECT o.id::text, o.facts_after FROM orchestrator.operations o WHERE o.state IN ('pending', 'in progress') AND o.facts_after IS NOT NULL
UNION ALL
SELECT o.id::text, o.facts_after FROM orchestrator.operations o
WHERE o.finished_at >= $1 AND o.state IN ('succeeded', 'failed', 'cancelled') AND o.facts_after IS NOT NULL
LIMIT $2`
	// The next two statements use the primary key, and lock the rows in the order of their ids.
	factsUnpublishedSQL = `
WITH v AS (
    SELECT v.id, v.after FROM orchestrator.operations o JOIN unnest($1::uuid[], $2::int4[]) AS v(id, after) USING (id) ORDER BY id FOR UPDATE OF o
) UPDATE orchestrator.operations o SET facts_after = LEAST(o.facts_after, v.after) FROM v WHERE o.id = v.id`
	factsPublishedSQL = `
WITH v AS (
    SELECT v.* FROM orchestrator.operations o JOIN unnest($1::uuid[], $2::int4[], $3::int4[]) AS v(id, after, through) USING (id)
    WHERE o.facts_after = v.after ORDER BY id FOR UPDATE OF o SKIP LOCKED
) UPDATE orchestrator.operations o SET facts_after = CASE WHEN o.cursor > v.through THEN v.through END
FROM v WHERE o.id = v.id AND o.facts_after = v.after`
	// entriesAfterSQL relies on history_pkey.
	entriesAfterSQL = `
SELECT v.id::text, ` + entryColumns + `
FROM unnest($1::uuid[], $2::int4[]) AS v(id, after), LATERAL (
    SELECT * FROM orchestrator.history h WHERE h.operation_id = v.id AND h.cursor > v.after ORDER BY h.cursor LIMIT $3
) h ORDER BY v.id, cursor`
	// activeSinceSQL scans operations_unfinished, and the part of operations_finished since $2. The text keeps the planner from reading
	// operations_pkey in its order, with all operations that ended before.
	activeSinceSQL = `
SELECT o.id FROM (
    SELECT id::text COLLATE "C" AS id FROM orchestrator.operations WHERE state IN ('pending', 'in progress') AND cursor > 0
    UNION ALL
    SELECT id::text FROM orchestrator.operations WHERE finished_at >= $2 AND state IN ('succeeded', 'failed', 'cancelled') AND cursor > 0
) o WHERE o.id > $1::uuid::text ORDER BY o.id LIMIT $3`
)

// FactRange is a part of the history of an operation: the lines with a cursor greater than After, up to and including Through.
type FactRange struct {
	OperationID    string
	After, Through int64
}

// Unpublished returns up to limit operations whose facts may not all be on the bus, without operations that ended before endedSince.
// Through is not set.
func (s *Store) Unpublished(ctx context.Context, endedSince time.Time, limit int) (found []FactRange, err error) {
	return collect(ctx, s.read, "look for facts that are not published", unpublishedSQL, []any{endedSince, limit},
		func(rows *sql.Rows, f *FactRange) error { return rows.Scan(&f.OperationID, &f.After) })
}

// FactsUnpublished stores that the facts of ranges may not be on the bus.
func (s *Store) FactsUnpublished(ctx context.Context, ranges []FactRange) error {
	return s.updateFactsAfter(ctx, factsUnpublishedSQL, ranges, false)
}

// FactsPublished stores that the facts of ranges are on the bus. It skips rows that are locked or whose facts_after has changed; their
// facts are published again.
func (s *Store) FactsPublished(ctx context.Context, ranges []FactRange) error {
	return s.updateFactsAfter(ctx, factsPublishedSQL, ranges, true)
}

func (s *Store) updateFactsAfter(ctx context.Context, query string, ranges []FactRange, through bool) error {
	if len(ranges) == 0 {
		return nil
	}
	var ids, after, last array
	for _, f := range ranges {
		ids.raw(f.OperationID)
		after.int(f.After)
		last.int(f.Through)
	}
	args := []any{&ids, &after}
	if through {
		args = append(args, &last)
	}
	if _, err := s.commit.ExecContext(ctx, query, args...); err != nil {
		return fmt.Errorf("note which facts are published: %w", err)
	}
	return nil
}

// EntriesAfter returns up to limit history entries after each range's After, by operation and in order. It ignores Through.
func (s *Store) EntriesAfter(ctx context.Context, ranges []FactRange, limit int) (map[string][]engine.Entry, error) {
	var ids, after array
	for _, f := range ranges {
		ids.raw(f.OperationID)
		after.int(f.After)
	}
	rows, err := s.read.QueryContext(ctx, entriesAfterSQL, &ids, &after, limit)
	if err != nil {
		return nil, fmt.Errorf("read histories: %w", err)
	}
	defer rows.Close()
	found := make(map[string][]engine.Entry, len(ranges))
	for rows.Next() {
		var id string
		e, err := scanEntry(rows, &id)
		if err != nil {
			return nil, fmt.Errorf("read histories: %w", err)
		}
		found[id] = append(found[id], e)
	}
	return found, rows.Err()
}

// ActiveSince returns up to limit operations that have not ended, or ended since a time, with ids greater than after, in the order of
// their ids.
func (s *Store) ActiveSince(ctx context.Context, since time.Time, after string, limit int) (found []string, err error) {
	if err := s.read.SelectContext(ctx, &found, activeSinceSQL, after, since, limit); err != nil {
		return nil, fmt.Errorf("list operations: %w", err)
	}
	return found, nil
}
