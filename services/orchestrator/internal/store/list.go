package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/event"
)

// Filter selects operations; empty fields select all.
type Filter struct {
	State, Type, Plan, InstanceID string
	// Limit and Offset cut a page out of the newest-first list.
	Limit, Offset int
}

func (f Filter) where() (clause string, args []any) {
	var conditions []string
	for _, c := range []struct{ column, value string }{
		{"o.state", f.State}, {"o.type", f.Type}, {"o.plan", f.Plan}, {"o.instance_id", f.InstanceID},
	} {
		if c.value != "" {
			args = append(args, c.value)
			conditions = append(conditions, fmt.Sprintf("%s = $%d", c.column, len(args)))
		}
	}
	if len(conditions) == 0 {
		return "", nil
	}
	return " WHERE " + strings.Join(conditions, " AND "), args
}

// List returns a page of operations, the newest first, and how many there are in all. It relies on operations_arrived.
func (s *Store) List(ctx context.Context, f Filter) (page []*Row, total int, err error) {
	where, args := f.where()
	if err := s.read.GetContext(ctx, &total, "SELECT count(*) FROM orchestrator.operations o"+where, args...); err != nil {
		return nil, 0, fmt.Errorf("count operations: %w", err)
	}
	query := fmt.Sprintf("SELECT%s%s%s ORDER BY o.arrived DESC LIMIT $%d OFFSET $%d",
		rowColumns, fromRows, where, len(args)+1, len(args)+2)
	rows, err := s.read.QueryContext(ctx, query, append(args, f.Limit, f.Offset)...)
	if err != nil {
		return nil, 0, fmt.Errorf("list operations: %w", err)
	}
	if page, err = scanRows(rows); err != nil {
		return nil, 0, fmt.Errorf("list operations: %w", err)
	}
	return page, total, nil
}

// Read returns operations by id for a question, not for a transition. What is no UUID or does not exist is left out.
func (s *Store) Read(ctx context.Context, ids []string) ([]*Row, error) {
	var list array
	for _, id := range ids {
		if parsed, err := uuid.Parse(id); err == nil {
			list.raw(parsed.String())
		}
	}
	rows, err := s.read.QueryContext(ctx, loadSQL, &list)
	if err != nil {
		return nil, fmt.Errorf("read operations: %w", err)
	}
	found, err := scanRows(rows)
	if err != nil {
		return nil, fmt.Errorf("read operations: %w", err)
	}
	return found, nil
}

// Running returns the operation in progress on each of the instances that have one.
func (s *Store) Running(ctx context.Context, instanceIDs []string) (map[string]string, error) {
	var list array
	for _, id := range instanceIDs {
		list.text(id)
	}
	rows, err := s.read.QueryContext(ctx, `
SELECT instance_id, running::text FROM orchestrator.instances WHERE running IS NOT NULL AND instance_id = ANY($1::text[])`, &list)
	if err != nil {
		return nil, fmt.Errorf("read running operations: %w", err)
	}
	defer rows.Close()
	running := map[string]string{}
	for rows.Next() {
		var instance, operation string
		if err := rows.Scan(&instance, &operation); err != nil {
			return nil, fmt.Errorf("read running operations: %w", err)
		}
		running[instance] = operation
	}
	return running, rows.Err()
}

// Line is one line of an operation's history. Its kind is the outcome for a step, and one of the kinds of the engine
// otherwise; stage and step are indexes into the definition, or -1.
type Line struct {
	Cursor                    int64
	Stage, Step               int
	StageAttempt, StepAttempt int
	StartedAt, FinishedAt     time.Time
	Kind                      string
	WorkerVersion, Message    string
	Error                     *event.Error
}

// History returns the history of an operation, the newest lines if there are more than the limit, in order. It relies on
// the primary key.
func (s *Store) History(ctx context.Context, operationID string, limit int) ([]Line, error) {
	rows, err := s.read.QueryContext(ctx, `
SELECT * FROM (
    SELECT cursor, stage, step, stage_attempt, step_attempt, started_at, finished_at, kind,
        COALESCE(worker_version, '') AS worker_version, COALESCE(message, '') AS message, error
    FROM orchestrator.history WHERE operation_id = $1::uuid ORDER BY cursor DESC LIMIT $2
) h ORDER BY cursor`, operationID, limit)
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	defer rows.Close()
	var lines []Line
	for rows.Next() {
		l, err := scanLine(rows)
		if err != nil {
			return nil, fmt.Errorf("read history: %w", err)
		}
		lines = append(lines, l)
	}
	return lines, rows.Err()
}

func scanLine(rows *sql.Rows) (Line, error) {
	var l Line
	var failure []byte
	err := rows.Scan(&l.Cursor, &l.Stage, &l.Step, &l.StageAttempt, &l.StepAttempt, &l.StartedAt, &l.FinishedAt, &l.Kind,
		&l.WorkerVersion, &l.Message, &failure)
	if err != nil {
		return l, err
	}
	l.StartedAt, l.FinishedAt = l.StartedAt.UTC(), l.FinishedAt.UTC()
	if len(failure) > 0 {
		l.Error = &event.Error{}
		if err := json.Unmarshal(failure, l.Error); err != nil {
			return l, fmt.Errorf("decode error: %w", err)
		}
	}
	return l, nil
}
