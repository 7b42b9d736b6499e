package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// Event is an entry of the history of an operation, with the ids of the operation and its instance.
type Event struct {
	engine.Entry
	OperationID, InstanceID string
	// Definition is the hash of the process definition.
	Definition string
}

// Events returns the newest stored entries of the histories of operations, in the order of time. It selects operations by id, by instance, or by
// both. Ids that are not UUIDs are ignored. It relies on the primary keys and on operations_instance.
func (s *Orchestrations) Events(ctx context.Context, operationIDs, instanceIDs []string, limit int) ([]Event, error) {
	var conditions []string
	var args []any
	for _, c := range []struct {
		condition string
		ids       []string
		isUUID    bool
	}{{"o.id = ANY($%d::uuid[])", operationIDs, true}, {"o.instance_id = ANY($%d::text[])", instanceIDs, false}} {
		if len(c.ids) == 0 {
			continue
		}
		var list array
		for _, id := range c.ids {
			parsed, err := uuid.Parse(id)
			switch {
			case !c.isUUID:
				list.text(clean(id))
			case err == nil:
				list.raw(parsed.String())
			}
		}
		args = append(args, &list)
		conditions = append(conditions, fmt.Sprintf(c.condition, len(args)))
	}
	if len(conditions) == 0 {
		return nil, errors.New("read events: no operation and no instance is named")
	}
	args = append(args, limit)
	return collect(ctx, s.read, "read events", fmt.Sprintf(`
SELECT e.operation_id::text, e.instance_id, e.definition, `+entryColumns+`
FROM (
    SELECT o.instance_id, r.definition, h.*
    FROM orchestrator.operations o JOIN orchestrator.requests r ON r.operation_id = o.id
    JOIN orchestrator.history h ON h.operation_id = o.id
    WHERE %s ORDER BY h.finished_at DESC, h.operation_id DESC, h.cursor DESC LIMIT $%d
) e ORDER BY e.finished_at, e.operation_id, e.cursor`, strings.Join(conditions, " AND "), len(args)), args, func(rows *sql.Rows, e *Event) (err error) {
		e.Entry, err = scanEntry(rows, &e.OperationID, &e.InstanceID, &e.Definition)
		return err
	})
}
