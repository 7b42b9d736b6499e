package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// failedAtSQL relies on operations_ended and the primary key of requests. It reads at most MaxCount operations.
var failedAtSQL = fmt.Sprintf(`
SELECT o.type, (SELECT r.definition FROM orchestrator.requests r WHERE r.operation_id = o.id) AS definition, o.stage, o.step, count(*)
FROM (SELECT id, type, stage, step FROM orchestrator.operations WHERE state = 'failed' AND created_at >= $1
    ORDER BY created_at DESC, arrived DESC LIMIT %d) o
GROUP BY o.type, definition, o.stage, o.step`, MaxCount)

// FailedAt counts the operations that failed at a step of a definition.
type FailedAt struct {
	Type        event.OperationType
	Definition  string
	Stage, Step int
	Count       int
}

// FailedAt counts the operations that were created since a time and have failed, by the step at which they failed; at most the newest
// MaxCount.
func (s *Store) FailedAt(ctx context.Context, since time.Time) ([]FailedAt, error) {
	rows, err := s.read.QueryContext(ctx, failedAtSQL, since)
	if err != nil {
		return nil, fmt.Errorf("count failed operations: %w", err)
	}
	defer rows.Close()
	var found []FailedAt
	for rows.Next() {
		var f FailedAt
		var definition sql.NullString
		if err := rows.Scan(&f.Type, &definition, &f.Stage, &f.Step, &f.Count); err != nil {
			return nil, fmt.Errorf("count failed operations: %w", err)
		}
		f.Definition = definition.String
		found = append(found, f)
	}
	return found, rows.Err()
}
