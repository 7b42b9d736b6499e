package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// field is a column of the rows that a statement writes. SQL and arguments are generated from lists of fields, so that each written column
// is declared once; rowColumns lists the columns that are read.
type field[T any] struct {
	name string
	typ  uint32
	// cast is the type of a column that is sent as text.
	cast string
	add  func(c *column, v *T) error
}

// plain returns a field whose encoding cannot fail.
func plain[T any](name string, typ uint32, add func(c *column, v *T)) field[T] {
	return field[T]{name: name, typ: typ, add: func(c *column, v *T) error { add(c, v); return nil }}
}

// encoded returns a field that is sent as text.
func encoded[T any](name, cast string, add func(c *column, v *T) error) field[T] {
	return field[T]{name: name, typ: typeText, cast: cast, add: add}
}

// operationFields are the mutable columns of an operation. id and version select the row; details_changed controls the update of details.
var operationFields = []field[Change]{
	{name: "id", typ: typeUUID, add: func(c *column, v *Change) error { return c.uuid(v.Row.Operation.ID) }},
	plain("version", typeInt4, func(c *column, v *Change) { c.int(v.Row.Version) }),
	plain("state", typeText, func(c *column, v *Change) { c.text(string(v.Row.Status)) }),
	plain("cursor", typeInt4, func(c *column, v *Change) { c.int(int(v.Row.Cursor)) }),
	plain("stage", typeInt4, func(c *column, v *Change) { c.int(v.Row.Stage) }),
	plain("step", typeInt4, func(c *column, v *Change) { c.int(v.Row.Step) }),
	plain("stage_attempt", typeInt4, func(c *column, v *Change) { c.int(v.Row.StageAttempt) }),
	plain("step_attempt", typeInt4, func(c *column, v *Change) { c.int(v.Row.StepAttempt) }),
	plain("dispatch", typeInt4, func(c *column, v *Change) { c.int(v.Row.Dispatch) }),
	plain("stage_memory", typeBool, func(c *column, v *Change) { c.bool(v.Row.StageMemory) }),
	plain("first_tried_at", typeTimestamptz, func(c *column, v *Change) { c.time(v.Row.FirstTriedAt) }),
	plain("execute_before", typeTimestamptz, func(c *column, v *Change) { c.time(v.Row.ExecuteBefore) }),
	plain("due_at", typeTimestamptz, func(c *column, v *Change) { c.time(v.Row.DueAt) }),
	plain("started_at", typeTimestamptz, func(c *column, v *Change) { c.time(v.Row.StartedAt) }),
	plain("finished_at", typeTimestamptz, func(c *column, v *Change) { c.time(v.Row.FinishedAt) }),
	plain("deadline", typeTimestamptz, func(c *column, v *Change) { c.time(v.Row.Deadline) }),
	encoded("tries", "jsonb", func(c *column, v *Change) error { return c.json(v.Row.Tries, len(v.Row.Tries) == 0) }),
	encoded("not_completed", "text[]", func(c *column, v *Change) error { c.list(v.Row.NotCompleted); return nil }),
	encoded("skipped", "jsonb", func(c *column, v *Change) error { return c.json(v.Row.Skipped, len(v.Row.Skipped) == 0) }),
	encoded("completed", "text[]", func(c *column, v *Change) error { c.list(v.Row.Completed); return nil }),
	plain("cancel_reason", typeText, func(c *column, v *Change) { c.textOrNull(clean(v.Row.CancelReason)) }),
	plain("message", typeText, func(c *column, v *Change) { c.textOrNull(clean(v.Row.Message)) }),
	encoded("error", "jsonb", func(c *column, v *Change) error { return c.error(v.Row.Error) }),
	plain("error_group", typeText, func(c *column, v *Change) { c.textOrNull(errorGroup(v.Row)) }),
	encoded("ending", "jsonb", func(c *column, v *Change) error { return c.json(v.Row.Ending, v.Row.Ending == nil) }),
	encoded("cause", "jsonb", func(c *column, v *Change) error { return c.json(v.Row.Cause, v.Row.Cause == nil) }),
	plain("stage_started_at", typeTimestamptz, func(c *column, v *Change) { c.time(v.Row.StageStartedAt) }),
	plain("sent_at", typeTimestamptz, func(c *column, v *Change) {
		if v.Row.SentAt.Equal(v.Row.FirstTriedAt) {
			c.null() // usual for a first try; it reduces the size of the write
			return
		}
		c.time(v.Row.SentAt)
	}),
	plain("command_cursor", typeInt4, func(c *column, v *Change) {
		if v.Row.CommandCursor == 0 {
			c.null()
			return
		}
		c.int(int(v.Row.CommandCursor))
	}),
	plain("condition", typeText, func(c *column, v *Change) { c.textOrNull(string(v.Row.Condition)) }),
	plain("condition_step", typeInt4, func(c *column, v *Change) {
		if v.Row.Condition == "" {
			c.null()
			return
		}
		c.int(v.Row.ConditionStep)
	}),
	plain("condition_since", typeTimestamptz, func(c *column, v *Change) { c.time(v.Row.ConditionSince) }),
	plain("event_key", typeText, func(c *column, v *Change) { c.textOrNull(v.Row.EventKey) }),
	encoded("events", "json", func(c *column, v *Change) error { return c.json(v.Row.Events, len(v.Row.Events) == 0) }),
	{name: "hold_id", typ: typeUUID, add: func(c *column, v *Change) error {
		if v.Row.HoldID == "" {
			c.null()
			return nil
		}
		return c.uuid(v.Row.HoldID)
	}},
	plain("held_since", typeTimestamptz, func(c *column, v *Change) { c.time(v.Row.HeldSince) }),
	plain("queue", typeText, func(c *column, v *Change) { c.textOrNull(v.Row.Queue) }),
	plain("limited_since", typeTimestamptz, func(c *column, v *Change) { c.time(v.Row.LimitedSince) }),
	encoded("granted", "text[]", func(c *column, v *Change) error { c.list(v.Row.Granted); return nil }),
	plain("extended_ms", typeInt4, func(c *column, v *Change) {
		if v.Row.Extended == 0 {
			c.null()
			return
		}
		c.int(int(v.Row.Extended / time.Millisecond))
	}),
	plain("unanswered_at", typeTimestamptz, func(c *column, v *Change) { c.time(v.Row.UnansweredAt) }),
	plain("facts_after", typeInt4, func(c *column, v *Change) {
		if v.FactsAfter == nil {
			c.null()
			return
		}
		c.int(int(*v.FactsAfter))
	}),
	plain("details_changed", typeBool, func(c *column, v *Change) { c.bool(v.DetailsChanged) }),
	encoded("details", "jsonb", func(c *column, v *Change) error {
		if !v.DetailsChanged {
			c.null()
			return nil
		}
		c.textOrNull(string(v.Row.Details))
		return nil
	}),
}

// line is a history entry with its operation.
type line struct {
	operation string
	*engine.Entry
}

// historyFields are the columns of the history.
var historyFields = []field[line]{
	{name: "operation_id", typ: typeUUID, add: func(c *column, v *line) error { return c.uuid(v.operation) }},
	plain("cursor", typeInt4, func(c *column, v *line) { c.int(int(v.Cursor)) }),
	plain("stage", typeInt4, func(c *column, v *line) { c.int(v.Stage) }),
	plain("step", typeInt4, func(c *column, v *line) { c.int(v.Step) }),
	plain("stage_attempt", typeInt4, func(c *column, v *line) { c.int(v.StageAttempt) }),
	plain("step_attempt", typeInt4, func(c *column, v *line) { c.int(v.StepAttempt) }),
	plain("started_at", typeTimestamptz, func(c *column, v *line) { c.time(v.StartedAt) }),
	plain("finished_at", typeTimestamptz, func(c *column, v *line) { c.time(v.FinishedAt) }),
	plain("kind", typeText, func(c *column, v *line) { c.text(v.Name()) }),
	plain("worker_version", typeText, func(c *column, v *line) { c.textOrNull(clean(v.WorkerVersion)) }),
	plain("message", typeText, func(c *column, v *line) { c.textOrNull(clean(v.Message)) }),
	encoded("error", "jsonb", func(c *column, v *line) error { return c.error(v.Error) }),
	plain("queued_ms", typeInt4, func(c *column, v *line) {
		if v.Queued == 0 {
			c.null()
			return
		}
		c.int(int(v.Queued / time.Millisecond))
	}),
	plain("retry_after_ms", typeInt4, func(c *column, v *line) {
		if v.RetryAfter == 0 {
			c.null()
			return
		}
		c.int(int(v.RetryAfter / time.Millisecond))
	}),
	encoded("saved", "jsonb", func(c *column, v *line) error { return c.json(v.Saved, v.Saved == nil) }),
}

// releaseFields are the columns for the instances of ended operations.
var releaseFields = []field[Change]{
	{name: "id", typ: typeUUID, add: func(c *column, v *Change) error { return c.uuid(v.Row.Operation.ID) }},
	plain("gone", typeBool, func(c *column, v *Change) { c.bool(v.Release.Gone) }),
	plain("removed", typeBool, func(c *column, v *Change) { c.bool(v.Release.Removed) }),
	encoded("completed", "text[]", func(c *column, v *Change) error { c.list(v.Release.Completed); return nil }),
}

// The parameters of a statement are the operations, then their history, then statement-specific ones.
var (
	afterOperations = 1 + len(operationFields)
	afterHistory    = afterOperations + len(historyFields)

	valuesSQL = `
    SELECT * FROM ` + unnest(operationFields, 1, "v", "n")
	historySQL = `
    INSERT INTO orchestrator.history (` + names(historyFields) + `)
    SELECT ` + values(historyFields, "h") + ` FROM ` + unnest(historyFields, afterOperations, "h")
)

var typeNames = map[uint32]string{
	typeBool: "bool", typeInt4: "int4", typeText: "text", typeTimestamptz: "timestamptz", typeUUID: "uuid",
}

// arrays returns array parameters of the types, numbered from first.
func arrays(first int, types ...string) string {
	out := make([]string, len(types))
	for i, typ := range types {
		out[i] = "$" + strconv.Itoa(first+i) + "::" + typ + "[]"
	}
	return strings.Join(out, ", ")
}

// unnest converts array parameters, numbered from first, into rows. number optionally names a column with the row number.
func unnest[T any](fields []field[T], first int, as string, number ...string) string {
	types := make([]string, len(fields))
	for i := range fields {
		types[i] = typeNames[fields[i].typ]
	}
	counted := ""
	if len(number) > 0 {
		counted = " WITH ORDINALITY"
	}
	return "unnest(" + arrays(first, types...) + ")" + counted + " AS " + as + "(" +
		strings.Join(append([]string{names(fields)}, number...), ", ") + ")"
}

// join joins the results of f for the fields that are not omitted.
func join[T any](fields []field[T], omitted []string, f func(v *field[T]) string) string {
	var out []string
	for i := range fields {
		if !slices.Contains(omitted, fields[i].name) {
			out = append(out, f(&fields[i]))
		}
	}
	return strings.Join(out, ", ")
}

func names[T any](fields []field[T], omitted ...string) string {
	return join(fields, omitted, func(v *field[T]) string { return v.name })
}

func values[T any](fields []field[T], table string, omitted ...string) string {
	return join(fields, omitted, func(v *field[T]) string { return v.value(table) })
}

func assignments[T any](fields []field[T], table string, omitted ...string) string {
	return join(fields, omitted, func(v *field[T]) string { return v.name + " = " + v.value(table) })
}

func (f *field[T]) value(table string) string {
	if f.cast == "" {
		return table + "." + f.name
	}
	return table + "." + f.name + "::" + f.cast
}

// columns are the arrays of a write statement.
type columns struct {
	operations, history, releases []column
	released                      bool
	line                          line // the line being added; a field to avoid an allocation
}

// newColumns returns columns with capacity for about that many changes.
func newColumns(changes int) *columns {
	return &columns{
		operations: newArrays(operationFields, changes), history: newArrays(historyFields, changes), releases: newArrays(releaseFields, 0),
	}
}

func newArrays[T any](fields []field[T], rows int) []column {
	out := make([]column, len(fields))
	for i := range fields {
		out[i] = newColumn(fields[i].typ, rows)
	}
	return out
}

func addRow[T any](arrays []column, fields []field[T], v *T) error {
	for i := range fields {
		if err := fields[i].add(&arrays[i], v); err != nil {
			return fmt.Errorf("%s: %w", fields[i].name, err)
		}
	}
	return nil
}

func (c *columns) add(change *Change) error {
	if err := addRow(c.operations, operationFields, change); err != nil {
		return err
	}
	if change.Release != nil {
		c.released = true
		if err := addRow(c.releases, releaseFields, change); err != nil {
			return err
		}
	}
	for i := range change.History {
		c.line = line{change.Row.Operation.ID, &change.History[i]}
		if err := addRow(c.history, historyFields, &c.line); err != nil {
			return err
		}
	}
	return nil
}

func (c *columns) args() []any {
	args := make([]any, 0, len(c.operations)+len(c.history)+len(c.releases))
	for _, arrays := range [][]column{c.operations, c.history} {
		for i := range arrays {
			args = append(args, arrays[i].value())
		}
	}
	for i := range c.releases {
		if c.released {
			args = append(args, c.releases[i].value())
		}
	}
	return args
}

// json appends a value as JSON, or NULL if it is empty.
func (c *column) json(v any, empty bool) error {
	if empty {
		c.null()
		return nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.text(cleanJSON(string(text)))
	return nil
}
