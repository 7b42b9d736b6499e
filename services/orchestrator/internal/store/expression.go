package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/filter"
)

// maxFilterTime limits a statement with a filter expression, because such a statement may have to read every operation.
const maxFilterTime = 5 * time.Second

// ErrSlowFilter means that a filter expression took too long.
var ErrSlowFilter = fmt.Errorf("takes longer than %s: add a condition that selects fewer operations, such as state = failed or created >= 24h", maxFilterTime)

// shownErrorSQL is the error of an operation as lists show it: the one that ends it, if there is one.
const shownErrorSQL = `COALESCE(o.ending -> 'error', o.error)`

// condition returns the condition of a comparison.
type condition func(w *where, f *Filter, c *filter.Comparison) string

// conditions are the conditions of the fields of the filter language, by name.
var conditions = map[string]condition{
	"attempts":        compared(sortKeys[SortAttempts]),
	"created":         compared("o.created_at"),
	"duration":        compared(sortKeys[SortDuration]),
	"error":           groupCondition,
	"error.component": matched(shownErrorSQL + ` ->> 'component'`),
	"error.message":   matched(shownErrorSQL + ` ->> 'message'`),
	"error.reason":    matched(shownErrorSQL + ` ->> 'reason'`),
	"finished":        compared("o.finished_at"),
	"global_account":  matched("o.global_account"),
	"held":            flagged("o.hold_id IS NOT NULL"),
	"hold":            identified("o.hold_id"),
	"id":              identified("o.id"),
	"incomplete":      flagged(incompleteSQL),
	"instance":        matched("o.instance_id"),
	"limit_name":      matched(queueNameSQL),
	"message":         matched("o.message"),
	"orchestration":   orchestrationCondition,
	"plan":            matched("o.plan"),
	"region":          matched("o.region"),
	"runtime":         requested("{runtime,name}"),
	"shoot":           requested("{runtime,shootName}"),
	"stage":           located,
	"started":         compared("o.started_at"),
	"state":           stateCondition,
	"step":            located,
	"subaccount":      requested("{context,subaccountId}"),
	"system":          located,
	"type":            matched("o.type"),
	"waiting":         waitingCondition,
	"worker":          located,
}

// expression returns the condition of an expression. NOT selects all other operations, also those without the field.
func (w *where) expression(f *Filter, e *filter.Expression) string {
	switch {
	case e.Comparison != nil:
		return "(" + conditions[e.Comparison.Field.Name](w, f, e.Comparison) + ")"
	case e.Not != nil:
		return "(" + w.expression(f, e.Not) + " IS NOT TRUE)"
	case len(e.Any) > 0:
		return w.joined(f, e.Any, " OR ")
	}
	return w.joined(f, e.All, " AND ")
}

func (w *where) joined(f *Filter, parts []*filter.Expression, by string) string {
	list := make([]string, len(parts))
	for i, part := range parts {
		list[i] = w.expression(f, part)
	}
	return "(" + strings.Join(list, by) + ")"
}

// matched returns the condition on a text.
func matched(sql string) condition {
	return func(w *where, _ *Filter, c *filter.Comparison) string { return w.matched(sql, c) }
}

func (w *where) matched(sql string, c *filter.Comparison) string {
	text := clean(c.Text())
	switch {
	case c.Operator == filter.Present:
		return sql + " <> ''"
	case c.Operator == filter.Contains:
		return w.bind(sql+" ILIKE %s", "%"+pattern(text)+"%")
	case strings.Contains(text, "*") && c.Field.Kind == operator.FilterText:
		return w.bind(sql+" LIKE %s", pattern(text))
	}
	return w.bind(sql+" = %s", text)
}

// pattern returns a pattern of LIKE for a text, where * stands for any characters.
func pattern(text string) string { return strings.ReplaceAll(escapeLike(text), "*", "%") }

// requested returns the condition on a text in the request. An index finds complete texts.
func requested(path string) condition {
	sql := "r.body #>> '" + path + "'"
	return func(w *where, _ *Filter, c *filter.Comparison) string {
		condition := w.matched(sql, c)
		if strings.HasPrefix(condition, sql+" = ") {
			return "o.id IN (SELECT r.operation_id FROM orchestrator.requests r WHERE " + condition + ")"
		}
		return "(SELECT " + condition + " FROM orchestrator.requests r WHERE r.operation_id = o.id)"
	}
}

// compared returns the condition on a time, a duration or a number.
func compared(sql string) condition {
	return func(w *where, _ *Filter, c *filter.Comparison) string {
		by := " " + string(c.Operator) + " "
		d, isDuration := c.Value.(time.Duration)
		switch {
		case c.Operator == filter.Present:
			return sql + " IS NOT NULL"
		case isDuration && c.Field.Kind == operator.FilterTime:
			return w.bind(sql+by+"now() - make_interval(secs => %s)", d.Seconds())
		case isDuration:
			return w.bind(sql+by+"make_interval(secs => %s)", d.Seconds())
		}
		return w.bind(sql+by+"%s", c.Value)
	}
}

// flagged returns the condition that a condition is true, or not.
func flagged(sql string) condition {
	return func(_ *where, _ *Filter, c *filter.Comparison) string {
		if c.Value == true {
			return sql
		}
		return "(" + sql + ") IS NOT TRUE"
	}
}

// identified returns the condition on a UUID.
func identified(sql string) condition {
	return func(w *where, _ *Filter, c *filter.Comparison) string {
		if c.Operator == filter.Present {
			return sql + " IS NOT NULL"
		}
		return w.bind(sql+" = %s::uuid", c.Text())
	}
}

func orchestrationCondition(w *where, _ *Filter, c *filter.Comparison) string {
	members := "o.id IN (SELECT m.operation_id FROM orchestrator.orchestration_members m"
	if c.Operator == filter.Present {
		return members + ")"
	}
	return w.bind(members+" WHERE m.orchestration_id = %s::uuid)", c.Text())
}

func groupCondition(w *where, _ *Filter, c *filter.Comparison) string {
	if c.Text() == NoErrorGroup {
		return "o.error_group IS NULL"
	}
	return w.matched("o.error_group", c)
}

func stateCondition(w *where, _ *Filter, c *filter.Comparison) string {
	if event.OperationState(c.Text()) == operator.Incomplete {
		return incompleteSQL
	}
	return w.matched("o.state", c)
}

func waitingCondition(w *where, f *Filter, c *filter.Comparison) string {
	return w.reason(operator.WaitingReason(c.Text()), f.Unserved)
}

// located returns the condition that an operation is at one of the places of a comparison, or failed there.
func located(w *where, f *Filter, c *filter.Comparison) string {
	places := f.Located[c]
	if len(places) == 0 { // the arguments of the other condition would not be used
		return "false"
	}
	return "o.state IN ('in progress', 'failed') AND " + w.at(places, w.standsAt(f.Unserved))
}

// limited runs the statements of a filter. If the filter has an expression, the time is limited, and the error is ErrSlowFilter after it.
func (s *Store) limited(ctx context.Context, f *Filter, run func(ctx context.Context) error) error {
	if f.Expression == nil {
		return run(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.maxFilterTime, ErrSlowFilter)
	defer cancel()
	err := run(ctx)
	if err != nil && errors.Is(context.Cause(ctx), ErrSlowFilter) {
		return ErrSlowFilter
	}
	return err
}
