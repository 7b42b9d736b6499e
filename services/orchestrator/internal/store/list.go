package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Read returns operations by id, archived ones last. It is for queries and not for transitions. Ids that are not UUIDs or do not exist are
// ignored.
func (s *Store) Read(ctx context.Context, ids []string) ([]*Row, error) {
	var list array
	for _, id := range ids {
		if parsed, err := uuid.Parse(id); err == nil {
			list.raw(parsed.String())
		}
	}
	rows, err := s.read.QueryContext(ctx, loadSQL, &list)
	found, err := readRows("read operations", rows, err)
	if err != nil {
		return nil, err
	}
	if len(found) == len(ids) {
		return found, nil
	}
	archived, err := s.readArchived(ctx, &list)
	if err != nil {
		return nil, err
	}
	return append(found, archived...), nil
}

// Awaited returns the operations whose command is in flight. It is for queries and not for transitions. The ids must be UUIDs.
func (s *Store) Awaited(ctx context.Context, ids []string) ([]*Row, error) {
	var list array
	for _, id := range ids {
		list.raw(id)
	}
	rows, err := s.read.QueryContext(ctx, awaitedSQL, &list)
	return readRows("read awaited operations", rows, err)
}

// Running returns the operation in progress by instance, for the instances that have one.
func (s *Store) Running(ctx context.Context, instanceIDs []string) (map[string]string, error) {
	var list array
	for _, id := range instanceIDs {
		list.text(id)
	}
	return pairs[string, string](ctx, s.read, "read running operations", `
SELECT instance_id, running::text FROM orchestrator.instances WHERE running IS NOT NULL AND instance_id = ANY($1::text[])`, &list)
}

// Recorded returns the time of the last history line by operation, for operations with a history. It uses the primary key.
func (s *Store) Recorded(ctx context.Context, ids []string) (map[string]time.Time, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var list array
	for _, id := range ids {
		list.raw(id)
	}
	rows, err := s.read.QueryContext(ctx, recordedSQL, &list)
	if err != nil {
		return nil, fmt.Errorf("read the ends of histories: %w", err)
	}
	defer rows.Close()
	recorded := make(map[string]time.Time, len(ids))
	for rows.Next() {
		var id string
		var at sql.NullTime
		if err := rows.Scan(&id, &at); err != nil {
			return nil, fmt.Errorf("read the ends of histories: %w", err)
		}
		if at.Valid {
			recorded[id] = at.Time.UTC()
		}
	}
	return recorded, rows.Err()
}

// recordedSQL relies on history_pkey.
const recordedSQL = `
SELECT v.id::text, (SELECT h.finished_at FROM orchestrator.history h WHERE h.operation_id = v.id ORDER BY h.cursor DESC LIMIT 1)
FROM unnest($1::uuid[]) AS v(id)`
