package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/filter"
)

// MaxCount is the maximum total that is counted for a list.
const MaxCount = 10_000

// reasonSQL is the reason of an operation in progress if a live worker serves its step, and pendingReasonSQL the one of a pending operation
// whose instance is free. An earlier release did not store the condition.
const (
	reasonSQL = `COALESCE(CASE WHEN o.hold_id IS NOT NULL THEN 'held' WHEN o.queue IS NOT NULL THEN 'limited' END, o.condition, CASE WHEN o.due_at IS NULL THEN 'executing' WHEN o.error IS NULL THEN 'polling' ELSE 'failing' END)`
	// busySQL reports whether another operation of the instance of a pending one runs, endedStatesSQL selects the index operations_ended_at, and
	// queueNameSQL is the name of the limit that a command waits for.
	busySQL          = `EXISTS (SELECT FROM orchestrator.instances n WHERE n.instance_id = o.instance_id AND n.running <> o.id)`
	endedStatesSQL   = `o.state IN ('succeeded', 'failed', 'cancelled')`
	queueNameSQL     = `split_part(o.queue, '/', 1)`
	pendingReasonSQL = `CASE WHEN o.hold_id IS NOT NULL THEN 'held' WHEN ` + boundedSQL + ` THEN 'limited' ELSE 'admission' END`
)

// Place is a step of a definition, by its hash and the indexes of stage and step.
type Place struct {
	Definition  string
	Type        event.OperationType
	Stage, Step int
	// Always selects the place in every definition of the type, so that the definition of an operation need not be read.
	Always bool
}

// Places is a set of places.
type Places []Place

// Position is the position of the last operation of a page. The next page starts after it.
type Position struct {
	CreatedAt time.Time
	Arrived   int64
	// Operation is the operation id, for lists of an orchestration.
	Operation string
}

// Sort is the order of a list.
type Sort string

// The orders. An index has the first two. By the others, only the newest MaxCount operations of a filter are sorted.
const (
	SortNewest   Sort = ""
	SortOldest   Sort = "oldest"
	SortDuration Sort = "duration"
	SortAttempts Sort = "attempts"
	SortState    Sort = "state"
)

// Bounded reports whether only the newest MaxCount operations are sorted.
func (s Sort) Bounded() bool { return sortKeys[s] != "" }

// sortKeys are the expressions of bounded orders, the greatest first.
var sortKeys = map[Sort]string{
	SortDuration: `CASE WHEN o.state = 'pending' THEN interval '0' ELSE COALESCE(o.finished_at, now()) - COALESCE(o.started_at, o.created_at) END`,
	SortAttempts: `GREATEST(o.step_attempt, o.stage_attempt)`,
	SortState:    `CASE o.state WHEN 'failed' THEN 5 WHEN 'in progress' THEN 4 WHEN 'pending' THEN 3 WHEN 'cancelled' THEN 2 ELSE 1 END`,
}

// Filter selects operations; empty fields select all, and several values of one field are alternatives.
type Filter struct {
	States []event.OperationState
	// Incomplete selects operations that succeeded without some of their steps, in addition to those in States.
	Incomplete bool
	Types      []event.OperationType
	Plans      []string
	InstanceID string
	// GlobalAccount and Region are those of the request. They find no operations that ended before these columns existed.
	GlobalAccount, Region string
	// Orchestration is a UUID.
	Orchestration string
	// Query is a prefix of an operation or instance id, or a complete subaccount id, global account id, shoot name or runtime name.
	Query string
	// Since and Until bound the time of creation; Until is exclusive.
	Since, Until time.Time
	// FinishedSince and FinishedUntil select ended operations by the time of their end; FinishedUntil is exclusive.
	FinishedSince, FinishedUntil time.Time
	// Waiting selects unfinished operations by reason.
	Waiting []operator.WaitingReason
	// Error selects operations by the key of a group of similar errors, or, if it is NoErrorGroup, operations without one.
	Error string
	// Hold is a UUID and selects the operations that it holds. LimitName selects operations whose commands wait for a limit.
	Hold, LimitName string
	// At, unless it is nil, selects operations in progress whose reason to wait belongs to one of these places, and, if States contains
	// event.Failed, also those that failed there. Unserved are the places of steps without a live worker; they distinguish operator.NoWorker from
	// the other reasons.
	At, Unserved Places
	// Expression is a further condition. Located are the places of its comparisons of stages, steps, workers and systems.
	Expression *filter.Expression
	Located    map[*filter.Comparison]Places
	// Sort is the order. After is not possible with bounded orders.
	Sort Sort
	// After is the position after which the page starts; nil means the first page.
	After *Position
	// Limit and Offset select a page of the list.
	Limit, Offset int
}

// where collects conditions and their arguments.
type where struct {
	conditions []string
	args       []any
}

// add adds a condition; each %s is replaced by an argument.
func (w *where) add(condition string, args ...any) {
	w.conditions = append(w.conditions, w.bind(condition, args...))
}

func (w *where) bind(condition string, args ...any) string {
	names := make([]any, len(args))
	for i, a := range args {
		w.args = append(w.args, a)
		names[i] = "$" + strconv.Itoa(len(w.args))
	}
	return fmt.Sprintf(condition, names...)
}

// oneOf adds the condition that a column has one of the values.
func oneOf[T ~string](w *where, column string, values []T) {
	switch len(values) {
	case 0:
	case 1:
		w.add(column+" = %s", clean(string(values[0])))
	default:
		var list array
		for _, v := range values {
			list.text(clean(string(v)))
		}
		w.add(column+" = ANY(%s::text[])", &list)
	}
}

func (w *where) String() string {
	if len(w.conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.conditions, " AND ")
}

// where returns the conditions of the filter, except those of Query and After.
func (f *Filter) where() *where {
	w := &where{}
	if f.Orchestration != "" {
		w.add("m.orchestration_id = %s::uuid", f.Orchestration)
	}
	f.state(w)
	oneOf(w, "o.type", f.Types)
	oneOf(w, "o.plan", f.Plans)
	if f.InstanceID != "" {
		w.add("o.instance_id = %s", clean(f.InstanceID))
	}
	if f.GlobalAccount != "" {
		w.add("o.global_account = left(%s, 100)", clean(f.GlobalAccount))
	}
	if f.Region != "" {
		w.add("o.region = left(%s, 100)", clean(f.Region))
	}
	if !f.Since.IsZero() {
		w.add("o.created_at >= %s", f.Since)
	}
	if !f.Until.IsZero() {
		w.add("o.created_at < %s", f.Until)
	}
	if !f.FinishedSince.IsZero() || !f.FinishedUntil.IsZero() {
		w.add(endedStatesSQL)
	}
	if !f.FinishedSince.IsZero() {
		w.add("o.finished_at >= %s", f.FinishedSince)
	}
	if !f.FinishedUntil.IsZero() {
		w.add("o.finished_at < %s", f.FinishedUntil)
	}
	switch f.Error {
	case "":
	case NoErrorGroup:
		w.add("o.error_group IS NULL")
	default:
		w.add("o.error_group = %s", clean(f.Error))
	}
	if f.Hold != "" {
		w.add("o.hold_id = %s::uuid", f.Hold)
	}
	if f.LimitName != "" {
		w.add(queueNameSQL+" = %s", clean(f.LimitName))
	}
	if f.At != nil {
		if slices.Contains(f.States, event.Failed) {
			w.add("o.state IN ('in progress', 'failed')")
		} else {
			w.add("o.state = 'in progress'")
		}
		if len(f.At) == 0 { // the arguments of the other condition would not be used
			w.add("false")
		} else {
			w.conditions = append(w.conditions, w.at(f.At, w.standsAt(f.Unserved)))
		}
	}
	if len(f.Waiting) > 0 {
		w.waiting(f.Waiting, f.Unserved)
	}
	if f.Expression != nil {
		w.conditions = append(w.conditions, w.expression(f, f.Expression))
	}
	return w
}

// incompleteSQL is the condition of the index operations_incomplete.
const incompleteSQL = "o.state = 'succeeded' AND o.not_completed IS NOT NULL"

// state adds the condition of States and Incomplete.
func (f *Filter) state(w *where) {
	switch {
	case !f.Incomplete || slices.Contains(f.States, event.Succeeded):
		oneOf(w, "o.state", f.States)
	case len(f.States) == 0:
		w.conditions = append(w.conditions, incompleteSQL)
	default:
		n := len(w.conditions)
		oneOf(w, "o.state", f.States)
		w.conditions[n] = "(" + w.conditions[n] + " OR " + incompleteSQL + ")"
	}
}

// currentStepSQL is the step of the command of an operation.
const currentStepSQL = "o.step"

// standsAt returns the step that the reason of an operation in progress belongs to, as it is shown: while a stage is repeated for a step that
// failed, it is that step. For a failed operation it is the step that failed.
func (w *where) standsAt(unserved Places) string {
	if len(unserved) == 0 {
		return "CASE WHEN o.state = 'failed' THEN o.step ELSE " + reasonStepSQL + " END"
	}
	return "CASE WHEN o.state = 'failed' OR " + w.unserved(unserved) + " THEN o.step ELSE " + reasonStepSQL + " END"
}

// unserved returns the condition that the command of an operation in progress waits for a worker that is not live.
func (w *where) unserved(places Places) string {
	// A held operation has no due time, like one whose command is in flight.
	return "(o.due_at IS NULL AND o.hold_id IS NULL AND " + w.at(places, currentStepSQL) + ")"
}

// at returns the condition that an operation is at one of the places, where current is its step. It reads the request only if the definitions
// of a type differ.
func (w *where) at(places Places, current string) string {
	always, some := map[string]bool{}, map[string]bool{}
	var kinds, stages, steps, definition, stage, step array
	for _, p := range places {
		pair := fmt.Sprintf("(%d,%d)", p.Stage, p.Step)
		if !p.Always {
			some[pair] = true
			definition.text(p.Definition)
			stage.int(int64(p.Stage))
			step.int(int64(p.Step))
			continue
		}
		if key := string(p.Type) + pair; !always[key] {
			always[key] = true
			kinds.text(string(p.Type))
			stages.int(int64(p.Stage))
			steps.int(int64(p.Step))
		}
	}
	alternatives := []string{"false"}
	const among = "(SELECT * FROM unnest(%s::text[], %s::int4[], %s::int4[]))"
	if len(always) > 0 {
		alternatives = append(alternatives, w.bind("(o.type, o.stage, "+current+") IN "+among, &kinds, &stages, &steps))
	}
	if len(some) > 0 {
		alternatives = append(alternatives, w.bind("(o.stage, "+current+") IN ("+strings.Join(slices.Sorted(maps.Keys(some)), ",")+
			") AND ((SELECT d.definition FROM orchestrator.requests d WHERE d.operation_id = o.id), o.stage, "+current+") IN "+among,
			&definition, &stage, &step))
	}
	return "(" + strings.Join(alternatives, " OR ") + ")"
}

func (w *where) waiting(reasons []operator.WaitingReason, unserved Places) {
	alternatives := make([]string, len(reasons))
	for i, reason := range reasons {
		alternatives[i] = w.reason(reason, unserved)
	}
	if len(alternatives) == 1 {
		w.conditions = append(w.conditions, alternatives[0])
		return
	}
	w.conditions = append(w.conditions, "o.state IN ('pending', 'in progress')", "("+strings.Join(alternatives, " OR ")+")")
}

// reason returns the condition that an operation waits for a reason.
func (w *where) reason(reason operator.WaitingReason, unserved Places) string {
	switch reason {
	case operator.NoWorker:
		return "o.state = 'in progress' AND " + w.unserved(unserved)
	case operator.InstanceBusy:
		return "o.state = 'pending' AND " + busySQL
	case operator.Admission:
		return "o.state = 'pending' AND o.hold_id IS NULL AND NOT " + busySQL + " AND NOT " + boundedSQL
	case operator.Limited:
		return "(o.queue IS NOT NULL OR o.state = 'pending' AND o.hold_id IS NULL AND NOT " + busySQL + " AND " + boundedSQL + ")"
	case operator.Held:
		return "o.hold_id IS NOT NULL AND (o.state = 'in progress' OR NOT " + busySQL + ")"
	}
	return w.bind("o.state = 'in progress' AND "+reasonSQL+" = %s AND NOT ", string(reason)) + w.unserved(unserved)
}

// search returns the condition that a text matches an operation, and a statement that finds matching operations with indexes.
func (w *where) search(text, union string) (condition, found string) {
	text = clean(text)
	escaped := escapeLike(text) + "%"
	exact := []string{"{context,subaccountId}", "{context,globalAccountId}", "{runtime,shootName}", "{runtime,name}"}
	conditions := []string{w.bind("o.instance_id LIKE %s", escaped)}
	selects := []string{"SELECT o.id FROM orchestrator.operations o WHERE " + conditions[0]}
	if low, high, ok := uuidRange(text); ok {
		conditions = append(conditions, w.bind("o.id BETWEEN %s::uuid AND %s::uuid", low, high))
		selects = append(selects, "SELECT o.id FROM orchestrator.operations o WHERE "+conditions[1])
	}
	argument := w.bind("%s", text)
	var matches []string
	for _, path := range exact {
		c := "r.body #>> '" + path + "' = " + argument
		matches = append(matches, c)
		selects = append(selects, "SELECT r.operation_id FROM orchestrator.requests r WHERE "+c)
	}
	// This is not a join, because a join could become a scan of all requests.
	conditions = append(conditions, "(SELECT "+strings.Join(matches, " OR ")+" FROM orchestrator.requests r WHERE r.operation_id = o.id)")
	return "(" + strings.Join(conditions, " OR ") + ")", strings.Join(selects, " "+union+" ")
}

// escapeLike returns a text so that LIKE finds it literally.
func escapeLike(text string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(text)
}

// uuidRange returns the range of UUIDs with a prefix.
func uuidRange(prefix string) (low, high string, ok bool) {
	const zero, last = "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"
	prefix = strings.ToLower(prefix)
	if len(prefix) > len(zero) {
		return "", "", false
	}
	low, high = prefix+zero[len(prefix):], prefix+last[len(prefix):]
	for _, s := range []string{low, high} {
		if _, err := uuid.Parse(s); err != nil {
			return "", "", false
		}
	}
	return low, high, true
}

// List is a page of operations.
type List struct {
	Rows []*Row
	// Next is the position for the next page; nil at the end.
	Next *Position
	// Total is the total number of operations, at most MaxCount; Capped means that there are more.
	Total  int
	Capped bool
}

// List returns a page of operations. Operations of an orchestration are ordered by their ids. Total is set only for the
// first page and for pages with an offset. List relies on operations_created, operations_unfinished, operations_ended, operations_type,
// operations_plan, operations_instance and, for the operations of an orchestration, on orchestration_members_list.
func (s *Store) List(ctx context.Context, f Filter) (list *List, err error) {
	err = s.limited(ctx, &f, func(ctx context.Context) error {
		list, err = s.page(ctx, f)
		return err
	})
	return list, err
}

func (s *Store) page(ctx context.Context, f Filter) (*List, error) {
	query, args, err := s.listSQL(ctx, &f)
	if err != nil {
		return nil, err
	}
	rows, err := s.read.QueryContext(ctx, query, args...)
	found, err := readRows("list operations", rows, err)
	if err != nil {
		return nil, err
	}
	list := &List{Rows: found}
	if len(found) > f.Limit {
		list.Rows = found[:f.Limit]
	}
	if len(found) > f.Limit && !f.Sort.Bounded() {
		last := list.Rows[f.Limit-1]
		list.Next = &Position{CreatedAt: last.CreatedAt, Arrived: last.Arrived, Operation: last.Operation.ID}
	}
	switch {
	case f.After != nil:
	case list.Next == nil && len(found) <= f.Limit && (f.Offset == 0 || len(found) > 0) && (!f.Sort.Bounded() || f.Offset == 0):
		list.Total = f.Offset + len(found)
	default:
		if list.Total, list.Capped, err = s.count(ctx, &f); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// listSQL returns the statement for a page and one more operation. It finds the ids of the page first, so that the other columns are read
// only for these.
func (s *Store) listSQL(ctx context.Context, f *Filter) (query string, args []any, err error) {
	w, from, err := s.from(ctx, f)
	if err != nil {
		return "", nil, err
	}
	order := f.order()
	switch {
	case f.After == nil:
	case f.Orchestration != "":
		w.add("m.operation_id "+f.after()+" %s::uuid", f.After.Operation)
	default:
		w.add("(o.created_at, o.arrived) "+f.after()+" (%s, %s)", f.After.CreatedAt, f.After.Arrived)
	}
	limit := w.bind(" LIMIT %s OFFSET %s", f.Limit+1, f.Offset)
	page := "SELECT o.id" + from + w.String() + " ORDER BY " + order
	// The id of a member is the id of its operation.
	order = strings.Replace(order, "m.operation_id", "o.id", 1)
	if f.Sort.Bounded() {
		newest := fmt.Sprintf("%s LIMIT %d", page, MaxCount)
		order = sortKeys[f.Sort] + " DESC, " + order
		page = "SELECT o.id FROM orchestrator.operations o WHERE o.id = ANY(ARRAY(" + newest + ")) ORDER BY " + order
	}
	page += limit
	return "SELECT" + rowColumns + fromRows + " WHERE o.id = ANY(ARRAY(" + page + ")) ORDER BY " + order, w.args, nil
}

func (f *Filter) order() string {
	direction := " DESC"
	if f.Sort == SortOldest {
		direction = ""
	}
	if f.Orchestration != "" {
		return "m.operation_id" + direction
	}
	return "o.created_at" + direction + ", o.arrived" + direction
}

// after returns the operator between an operation and the one before it.
func (f *Filter) after() string {
	if f.Sort == SortOldest {
		return ">"
	}
	return "<"
}

// from returns the FROM clause and the conditions of a filter, without the start of the page.
func (s *Store) from(ctx context.Context, f *Filter) (w *where, from string, err error) {
	w = f.where()
	from = " FROM orchestrator.operations o"
	if f.Orchestration != "" {
		from += " JOIN orchestrator.orchestration_members m ON m.operation_id = o.id"
	}
	if f.Query == "" {
		return w, from, nil
	}
	few, err := s.hasFewMatches(ctx, f.Query)
	if err != nil {
		return nil, "", err
	}
	condition, found := w.search(f.Query, "UNION")
	// A few matches are looked up by id. With many matches a scan of the list soon finds some.
	if few {
		condition = "o.id = ANY(ARRAY(" + found + "))"
	}
	w.conditions = append(w.conditions, condition)
	return w, from, nil
}

// hasFewMatches reports whether a search finds at most MaxCount operations.
func (s *Store) hasFewMatches(ctx context.Context, text string) (bool, error) {
	w := &where{}
	_, found := w.search(text, "UNION ALL") // stops at the limit, unlike UNION
	n, err := s.countAtMost(ctx, found, w.args)
	return n <= MaxCount, err
}

// count counts the operations of a filter.
func (s *Store) count(ctx context.Context, f *Filter) (n int, capped bool, err error) {
	query, args, err := s.countSQL(ctx, f)
	if err != nil {
		return 0, false, err
	}
	n, err = s.countAtMost(ctx, query, args)
	return min(n, MaxCount), n > MaxCount, err
}

// countSQL returns a statement with one row for each operation. It uses the same plan as the list.
func (s *Store) countSQL(ctx context.Context, f *Filter) (query string, args []any, err error) {
	w, from, err := s.from(ctx, f)
	if err != nil {
		return "", nil, err
	}
	return "SELECT 1" + from + w.String() + " ORDER BY " + f.order(), w.args, nil
}

// countAtMost counts the rows of a statement, up to MaxCount + 1.
func (s *Store) countAtMost(ctx context.Context, query string, args []any) (int, error) {
	var n int
	err := s.read.GetContext(ctx, &n, atMost(query), args...)
	if err != nil {
		return 0, fmt.Errorf("count operations: %w", err)
	}
	return n, nil
}

func atMost(query string) string {
	return fmt.Sprintf("SELECT count(*) FROM (%s LIMIT %d) c", query, MaxCount+1)
}
