package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/event"
)

// writeSQL writes new states by primary key, and the history of the operations whose version has not changed since it was read.
var writeSQL = `
WITH v AS (` + valuesSQL + `
), u AS (
    UPDATE orchestrator.operations o SET ` + assignments(operationFields, "v", "id", "version", "facts_after", "details_changed", "details") + `,
        turn = CASE WHEN v.queue = o.queue THEN o.turn END, turns = CASE WHEN v.queue IS NOT NULL THEN o.turns END,
        version = o.version + 1, facts_after = LEAST(o.facts_after, v.facts_after),
        details = CASE WHEN v.details_changed THEN v.details::jsonb ELSE o.details END
    FROM v WHERE o.id = v.id AND o.version = v.version
    RETURNING o.id, o.instance_id, o.details, o.unanswered_at
), h AS (` + historySQL + `
    JOIN u ON u.id = h.operation_id
)`

// writeReleaseSQL also frees the instances of ended operations by primary key, and returns the number of operations that wait for each.
var (
	writeOnlySQL    = writeSQL + ` SELECT id, 0 FROM u`
	writeReleaseSQL = writeSQL + `, r AS (
    SELECT * FROM ` + unnest(releaseFields, afterHistory, "r") + `
), i AS (
    UPDATE orchestrator.instances n SET
        running = NULLIF(n.running, u.id),
        details = CASE WHEN r.gone THEN NULL ELSE u.details END,
        completed = r.completed::text[],
        removed = r.removed,
        unanswered_at = CASE WHEN r.gone THEN NULL ELSE u.unanswered_at END
    FROM u JOIN r ON r.id = u.id WHERE n.instance_id = u.instance_id
    RETURNING n.instance_id, n.waiting
) SELECT u.id, COALESCE(i.waiting, 0) FROM u LEFT JOIN i ON i.instance_id = u.instance_id`
)

func (c *column) error(e *event.Error) error {
	if e == nil {
		c.null()
		return nil
	}
	text, err := json.Marshal(event.Error{Component: clean(e.Component), Reason: clean(e.Reason), Message: clean(e.Message)})
	if err != nil {
		return fmt.Errorf("encode error: %w", err)
	}
	c.text(string(text))
	return nil
}

// Write commits the changes of operations whose version has not changed since it was read, and increases their versions. It returns the
// number of operations that wait for the instance of each written operation, if the change released it; otherwise 0. Write uses one
// statement and one commit for all changes. There must be at most one change per operation, and one release per instance.
func (s *Store) Write(ctx context.Context, changes []*Change) (map[string]int, error) {
	return s.writeWith(ctx, func(stmt *sqlx.Stmt) *sqlx.Stmt { return stmt }, changes)
}

// Write is Write inside a transaction.
func (t *Tx) Write(ctx context.Context, changes []*Change) (map[string]int, error) {
	return t.s.writeWith(ctx, func(stmt *sqlx.Stmt) *sqlx.Stmt { return t.tx.StmtxContext(ctx, stmt) }, changes)
}

func (s *Store) writeWith(ctx context.Context, bind func(*sqlx.Stmt) *sqlx.Stmt, changes []*Change) (written map[string]int, err error) {
	if len(changes) == 0 {
		return nil, nil
	}
	c := newColumns(len(changes))
	for _, change := range changes {
		if err := c.add(change); err != nil {
			return nil, fmt.Errorf("write operation %s: %w", change.Row.Operation.ID, err)
		}
	}
	stmt := s.write
	if c.released {
		stmt = s.writeRelease
	}
	rows, err := bind(stmt).QueryContext(ctx, c.args()...)
	if err != nil {
		return nil, fmt.Errorf("write operations: %w", err)
	}
	written = make(map[string]int, len(changes))
	if err := scanWritten(rows, written); err != nil {
		return nil, fmt.Errorf("write operations: %w", err)
	}
	for _, change := range changes {
		if _, ok := written[change.Row.Operation.ID]; ok {
			change.Row.Version++
		}
	}
	return written, nil
}

func scanWritten(rows *sql.Rows, written map[string]int) error {
	defer rows.Close()
	for rows.Next() {
		var id sql.RawBytes
		var waiting int
		if err := rows.Scan(&id, &waiting); err != nil {
			return err
		}
		written[uuidText(id)] = waiting
	}
	return rows.Err()
}
