package agent

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
)

// Pages of lists.
const (
	usualPage = 20
	maxPage   = 100
	// usualLines and maxLines are lines of a history.
	usualLines, maxLines = 30, 200
)

func pageSize(asked, usual, most int) string {
	if asked <= 0 {
		asked = usual
	}
	return strconv.Itoa(min(asked, most))
}

// operationRow are the members of an operation in a list.
var operationRow = []string{
	"id", "type", "state", "instanceId", "plan", "region", "runtimeName", "shootName", "globalAccountId", "stage", "step", "stepAttempt", "message", "error",
	"notCompleted", "waiting", "waitingFor", "budget", "cancelRequested", "createdAt", "startedAt", "finishedAt", "orchestrationId", "dryRun",
	"incomplete", "cause", "purpose",
}

type operationsArgs struct {
	State         []operationState         `json:"state,omitempty" jsonschema:"Only operations in one of these states. pending: not started yet. incomplete: succeeded without some of its steps."`
	Type          []event.OperationType    `json:"type,omitempty" jsonschema:"Only operations of these types."`
	Waiting       []operator.WaitingReason `json:"waiting,omitempty" jsonschema:"Only operations that have not ended and stand where they stand for one of these reasons."`
	Plan          []string                 `json:"plan,omitempty" jsonschema:"Names of plans, for example azure."`
	Step          string                   `json:"step,omitempty" jsonschema:"Name of a step, for example EDP_Registration. Operations in progress at this step match, and with state failed those that failed there."`
	Worker        string                   `json:"worker,omitempty" jsonschema:"Worker of that step, in the same way."`
	System        string                   `json:"system,omitempty" jsonschema:"External system that the step calls, in the same way."`
	Instance      string                   `json:"instance,omitempty" jsonschema:"ID of an instance."`
	Orchestration string                   `json:"orchestration,omitempty" jsonschema:"ID of an orchestration."`
	GlobalAccount string                   `json:"global_account,omitempty" jsonschema:"ID of a global account."`
	Region        string                   `json:"region,omitempty" jsonschema:"Region of the hyperscaler."`
	Search        string                   `json:"search,omitempty" jsonschema:"Beginning of an operation ID or instance ID (at least 3 characters), or the whole subaccount ID, global account ID or shoot name."`
	Error         string                   `json:"error,omitempty" jsonschema:"Key of a group of the tool errors: only operations with a similar error."`
	Hold          string                   `json:"hold,omitempty" jsonschema:"ID of a hold: only the operations that it holds."`
	Limit         string                   `json:"limit,omitempty" jsonschema:"Name of a limit: only operations whose command waits for it."`
	Filter        string                   `json:"filter,omitempty" jsonschema:"A further condition in the language of AIP-160, for example: state = failed AND error.component = edp AND NOT plan:(trial OR free) AND created >= 24h. A wrong field gets an error that lists the fields."`
	Sort          order                    `json:"sort,omitempty" jsonschema:"Order; default newest. duration and attempts have the longest first, and allow no cursor."`
	Since         string                   `json:"since,omitempty" jsonschema:"Only operations requested since this time, such as 2026-11-21T22:00:00Z, or since a duration ago, such as 2h."`
	Until         string                   `json:"until,omitempty" jsonschema:"Only operations requested before this time, in the same forms."`
	FinishedSince string                   `json:"finished_since,omitempty" jsonschema:"Only operations that ended since this time, in the same forms."`
	Cursor        string                   `json:"cursor,omitempty" jsonschema:"nextCursor of the previous page."`
	PageSize      int                      `json:"page_size,omitempty" jsonschema:"Operations per page: 1 to 100, default 20."`
}

// query returns the query of the list of operations.
func (a *operationsArgs) query(now time.Time) (url.Values, error) {
	q := url.Values{}
	put(q, "state", join(a.State))
	put(q, "type", join(a.Type))
	put(q, "waiting", join(a.Waiting))
	put(q, "plan", strings.Join(a.Plan, ","))
	put(q, "step", a.Step)
	put(q, "worker", a.Worker)
	put(q, "system", a.System)
	put(q, "instance", a.Instance)
	put(q, "orchestration", a.Orchestration)
	put(q, "global_account", a.GlobalAccount)
	put(q, "region", a.Region)
	put(q, "q", a.Search)
	put(q, "error", a.Error)
	put(q, "hold", a.Hold)
	put(q, "limit_name", a.Limit)
	put(q, "filter", a.Filter)
	put(q, "sort", string(a.Sort))
	put(q, "cursor", a.Cursor)
	for name, value := range map[string]string{"since": a.Since, "until": a.Until, "finished_since": a.FinishedSince} {
		at, err := moment(name, value, now)
		if err != nil {
			return nil, err
		}
		put(q, name, at)
	}
	return q, nil
}

// moment returns a time in the form of the API. value is a time, a duration before now, or empty.
func moment(name, value string, now time.Time) (string, error) {
	if value == "" {
		return "", nil
	}
	if d, err := time.ParseDuration(value); err == nil && d > 0 {
		return now.Add(-d).UTC().Format(time.RFC3339), nil
	}
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return "", fmt.Errorf("%s %q: must be a time such as 2026-11-21T22:00:00Z, or a duration such as 2h", name, value)
	}
	return at.UTC().Format(time.RFC3339), nil
}

func join[T ~string](list []T) string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return strings.Join(out, ",")
}

func put(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

type operationArgs struct {
	ID    string `json:"id" jsonschema:"ID of the operation."`
	Lines int    `json:"lines,omitempty" jsonschema:"Newest lines of the history: 0 to 200, default 30."`
}

type historyArgs struct {
	ID       string `json:"id" jsonschema:"ID of the operation."`
	After    int64  `json:"after,omitempty" jsonschema:"nextAfter of the previous page; 0 begins with the oldest line."`
	PageSize int    `json:"page_size,omitempty" jsonschema:"Lines per page: 1 to 200, default 30."`
}

type eventsArgs struct {
	Instance  string `json:"instance,omitempty" jsonschema:"ID of an instance."`
	Operation string `json:"operation,omitempty" jsonschema:"ID of an operation."`
	Errors    bool   `json:"errors,omitempty" jsonschema:"Only events of level error."`
	Lines     int    `json:"lines,omitempty" jsonschema:"Newest events: 1 to 200, default 30."`
}

func (s *server) addOperations() {
	read(s, tool{
		"stuck", "What stands still",
		"Lists operations that stand still, grouped by reason, type and step, with how many, since when, the last error and up to 5 operation IDs. " +
			"Begin here with an alert. Groups: failing, no_answer, no_worker, held, limited, instance_busy (blockedBy has the operation in front), slow, " +
			"event, and polling that takes more than half of its time. An empty list means that every operation makes progress.",
	}, func(ctx context.Context, a struct {
		Reason operator.WaitingReason `json:"reason,omitempty" jsonschema:"Only groups with this reason."`
		Step   string                 `json:"step,omitempty" jsonschema:"Only groups at this step."`
		Worker string                 `json:"worker,omitempty" jsonschema:"Only groups at steps of this worker."`
	},
	) (any, error) {
		out, err := s.get(ctx, "/stuck", nil)
		if err != nil {
			return nil, err
		}
		groups := matching(out["data"], map[string]string{"reason": string(a.Reason), "step": a.Step, "worker": a.Worker})
		return map[string]any{"data": groups, "count": len(groups), "totalCount": out["totalCount"]}, nil
	})

	read(s, tool{
		"errors", "Group errors",
		"Groups operations by similar errors: now (operations that stand still with an error, without a worker, held or limited), and failed (since " +
			"failedSince, not retried). Each group has the error without names and IDs, how many operations, the first and the last time, steps, systems, " +
			"one operation as a sample, and key for the filter error of the tool operations. Begin here when many operations fail.",
	}, func(ctx context.Context, _ struct{}) (any, error) { return s.get(ctx, "/errors", nil) })

	read(s, tool{
		"operations", "List operations",
		"Lists operations, newest first. All filters must match. Each row has the state, the reason for which it waits, the last error, and how much of the " +
			"budget of its step is left. To count, ask for page_size 1 and read totalCount. nextCursor leads to the next page.",
	}, func(ctx context.Context, a operationsArgs) (any, error) {
		q, err := a.query(s.deps.Now())
		if err != nil {
			return nil, err
		}
		q.Set("page_size", pageSize(a.PageSize, usualPage, maxPage))
		out, err := s.get(ctx, "/operations", q)
		if err != nil {
			return nil, err
		}
		out["data"] = pickAll(out["data"], operationRow...)
		return out, nil
	})

	read(s, tool{
		"operation", "Show an operation",
		"Shows one operation: what it waits for and since when, its last error with component (the failing system), reason and message, the budget of its " +
			"step and what happens when that is spent, all stages and steps with their states, the newest lines of its history, and the data that workers " +
			"have saved. Consecutive tries with the same result are one line with tries and first.",
	}, func(ctx context.Context, a operationArgs) (any, error) {
		out, err := s.find(ctx, "operation", a.ID, `the tool "operations" with search finds operations by the beginning of an ID`, operationPath(a.ID))
		if err != nil {
			return nil, err
		}
		lines := usualLines
		if a.Lines > 0 {
			lines = min(a.Lines, maxLines)
		}
		out["history"] = newest(out["history"], lines)
		stages, _ := out["stages"].([]any)
		for _, stage := range stages {
			object, _ := stage.(map[string]any)
			object["steps"] = pickAll(object["steps"], "name", "worker", "state", "attempts", "firstTriedAt", "finishedAt", "durationMs", "message", "error")
		}
		return out, nil
	})

	read(s, tool{
		"operation_history", "Read the history of an operation",
		"Reads the history of one operation page by page, oldest first. nextAfter leads to the next page; without it the page is the last one.",
	}, func(ctx context.Context, a historyArgs) (any, error) {
		q := url.Values{"after": {strconv.FormatInt(a.After, 10)}, "page_size": {pageSize(a.PageSize, usualLines, maxLines)}}
		out, err := s.get(ctx, operationPath(a.ID)+"/history", q)
		if errors.Is(err, operator.ErrNotFound) {
			return nil, fmt.Errorf("there is no operation %q", a.ID)
		}
		return out, err
	})

	read(s, tool{
		"events", "List events of an instance or operation",
		"Lists the newest lines of the histories of an instance (all its operations) or of one operation as short messages, oldest first.",
	}, s.events)

	read(s, tool{
		"find", "Find runtimes and operations",
		"Finds runtimes by the beginning of their name, shoot name, instance ID, runtime ID, subaccount ID or global account ID, and operations that match. " +
			"Begin here when a person names a customer or a cluster.",
	}, func(ctx context.Context, a struct {
		Text string `json:"text" jsonschema:"At least 3 characters."`
	},
	) (any, error) {
		out, err := s.get(ctx, "/find", url.Values{"q": {a.Text}})
		if err != nil {
			return nil, err
		}
		out["operations"] = pickAll(out["operations"], operationRow...)
		return out, nil
	})

	read(s, tool{
		"instance", "Show an instance",
		"Shows everything about one instance (the runtime of a customer): state, plan, parameters as sent and as effective, bindings without secrets, its newest " +
			"operations, membership in orchestrations, and events. problems lists what could not be read.",
	}, func(ctx context.Context, a struct {
		ID         string `json:"id" jsonschema:"ID of the instance."`
		Operations int    `json:"operations,omitempty" jsonschema:"Newest operations: 1 to 50, default 10."`
	},
	) (any, error) {
		out, err := s.find(ctx, "instance", a.ID, `the tool "find" finds instances by names and IDs`, "/instances/"+url.PathEscape(a.ID))
		if err != nil {
			return nil, err
		}
		operations, most := pickAll(out["operations"], operationRow...), 10
		if a.Operations > 0 {
			most = a.Operations
		}
		out["operations"] = operations[:min(most, len(operations))]
		out["events"] = newest(out["events"], 10)
		return out, nil
	})
}

func operationPath(id string) string { return "/operations/" + url.PathEscape(id) }

func (s *server) events(ctx context.Context, a eventsArgs) (any, error) {
	q := url.Values{}
	put(q, "instance_ids", a.Instance)
	put(q, "operation_ids", a.Operation)
	if len(q) != 1 {
		return nil, errors.New("set either instance or operation")
	}
	raw, err := s.deps.Reader.Get(ctx, "/events", q)
	if err != nil {
		return nil, err
	}
	list, err := decodeList(raw)
	if err != nil {
		return nil, err
	}
	if a.Errors {
		list = matching(list, map[string]string{"Level": "error"})
	}
	lines := usualLines
	if a.Lines > 0 {
		lines = min(a.Lines, maxLines)
	}
	return map[string]any{"data": newest(list, lines), "totalCount": len(list)}, nil
}

// matching returns the objects of a list whose members have these values; an empty value matches everything.
func matching(from any, want map[string]string) []any {
	list, _ := from.([]any)
	out := []any{}
	for _, e := range list {
		object, _ := e.(map[string]any)
		fits := true
		for name, value := range want {
			fits = fits && (value == "" || object[name] == value)
		}
		if fits {
			out = append(out, e)
		}
	}
	return out
}
