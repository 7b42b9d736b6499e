package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// failedAtSQL relies on operations_ended_at and the primary key of requests. It reads at most MaxCount operations.
var failedAtSQL = fmt.Sprintf(`
SELECT o.type, (SELECT r.definition FROM orchestrator.requests r WHERE r.operation_id = o.id) AS definition, o.stage, o.step, count(*)
FROM (SELECT id, type, stage, step FROM orchestrator.operations WHERE state = 'failed' AND finished_at >= $1
    ORDER BY finished_at DESC LIMIT %d) o
GROUP BY o.type, definition, o.stage, o.step`, MaxCount)

// FailedAt counts the operations that failed at a step of a definition.
type FailedAt struct {
	Type        event.OperationType
	Definition  string
	Stage, Step int
	Count       int
}

// FailedAt counts the operations that failed since a time, by the step at which they failed; at most the latest MaxCount.
func (s *Store) FailedAt(ctx context.Context, since time.Time) ([]FailedAt, error) {
	return collect(ctx, s.read, "count failed operations", failedAtSQL, []any{since}, func(rows *sql.Rows, f *FailedAt) error {
		var definition sql.NullString
		if err := rows.Scan(&f.Type, &definition, &f.Stage, &f.Step, &f.Count); err != nil {
			return err
		}
		f.Definition = definition.String
		return nil
	})
}
