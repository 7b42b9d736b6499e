package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kyma-project/keb/libs/event"
)

// maxSeries limits the series in an answer of the tool metrics.
const maxSeries = 200

func decodeList(raw []byte) ([]any, error) {
	var list []any
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("the operator API does not answer with a list: %w", err)
	}
	return list, nil
}

type auditArgs struct {
	Target   string  `json:"target,omitempty" jsonschema:"ID of an operation, orchestration, batch or hold."`
	Name     string  `json:"name,omitempty" jsonschema:"Name of the person or token that acted."`
	Action   string  `json:"action,omitempty" jsonschema:"Only this action, for example skip, cancel, retry, create_hold, release_hold, apply_limits, order_batch or upgrade_kyma."`
	Outcome  outcome `json:"outcome,omitempty" jsonschema:"Only actions with this outcome. refused: the action was not possible, or the caller not allowed."`
	Page     int     `json:"page,omitempty" jsonschema:"Page, from 1."`
	PageSize int     `json:"page_size,omitempty" jsonschema:"Actions per page: 1 to 100, default 20."`
}

type metricsArgs struct {
	Name   string            `json:"name" jsonschema:"A part of the names of metrics, for example external_requests, dead_letters, worker_steps_running, limit or gauges_fresh. docs/metrics.md describes all."`
	Labels map[string]string `json:"labels,omitempty" jsonschema:"Only series whose labels have these values, for example {\"system\": \"edp\"}."`
	Zero   bool              `json:"zero,omitempty" jsonschema:"Include series with the value 0."`
}

func (s *server) addSystem() {
	read(s, tool{
		"overview", "Overview",
		"Counts all operations by type and state, those that have not ended by the reason why they wait, and operations in progress by step; names the " +
			"oldest unfinished operation of each type, and counts what started and ended in the last hour.",
	}, func(ctx context.Context, _ struct{}) (any, error) { return s.get(ctx, "/overview", nil) })

	read(s, tool{
		"throughput", "Throughput",
		"Counts operations that started, succeeded, failed or were cancelled, and executions of steps by outcome, in intervals of the last minutes. Counts " +
			"of 0 are left out. Shows when a problem began.",
	}, func(ctx context.Context, a struct {
		Minutes int `json:"minutes,omitempty" jsonschema:"How far back: 1 to 1440, default 60. Up to 60 the intervals are minutes, above that a 60th of the time."`
	},
	) (any, error) {
		minutes := min(max(a.Minutes, 0), 1440)
		if minutes == 0 {
			minutes = 60
		}
		bucket := (minutes + 59) / 60
		out, err := s.get(ctx, "/throughput", url.Values{"minutes": {strconv.Itoa(minutes)}, "bucket": {strconv.Itoa(bucket) + "m"}})
		if err != nil {
			return nil, err
		}
		return withoutZeros(out), nil
	})

	read(s, tool{
		"workers", "List workers",
		"Lists workers: whether a replica is alive and since when not, replicas, versions, the steps that they serve, missingSteps (steps of the processes that " +
			"no live replica serves), commands that wait for them, and executions and failures per minute.",
	}, func(ctx context.Context, a struct {
		Worker string `json:"worker,omitempty" jsonschema:"Only the worker with this name."`
	},
	) (any, error) {
		out, err := s.get(ctx, "/workers", nil)
		if err != nil {
			return nil, err
		}
		all := out["data"]
		if out["data"] = matching(all, map[string]string{"name": a.Worker}); a.Worker != "" && isEmpty(out["data"]) {
			return nil, fmt.Errorf("there is no worker %q; known: %s", a.Worker, strings.Join(members(all, "name"), ", "))
		}
		return out, nil
	})

	read(s, tool{
		"processes", "Show process definitions",
		"Shows the definition of a type of operation: its stages and steps in order, with the worker of each step, its condition, execution limit, retry budget, " +
			"the external systems that it calls, and what happens when the budget is spent. Without a type, it lists the names of the steps only.",
	}, func(ctx context.Context, a struct {
		Type event.OperationType `json:"type,omitempty" jsonschema:"Type of operation."`
		Step string              `json:"step,omitempty" jsonschema:"Only the step with this name, of all types."`
	},
	) (any, error) {
		out, err := s.get(ctx, "/processes", nil)
		if err != nil {
			return nil, err
		}
		return processes(out, string(a.Type), a.Step), nil
	})

	read(s, tool{
		"holds", "List holds",
		"Lists holds: each keeps operations in its scope from starting or from sending commands. Shows who created it, when and why, until when, and how many " +
			"operations it holds now.",
	}, func(ctx context.Context, _ struct{}) (any, error) { return s.get(ctx, "/holds", nil) })

	read(s, tool{
		"limits", "Show limits",
		"Shows the limits of concurrency and rate: their scope, what they allow, what is in use, and what waits, with the document that an operator applied and " +
			"its version.",
	}, func(ctx context.Context, _ struct{}) (any, error) {
		out, err := s.get(ctx, "/limits", nil)
		if err != nil {
			return nil, err
		}
		if text, ok := out["document"].(string); ok {
			out["document"] = document(text)
		}
		return out, nil
	})

	read(s, tool{
		"dead_letters", "Show dead letters",
		"Lists messages of the bus that could not be handled, newest first, with the reason, or shows one with its payload. redrive says what publishing it " +
			"again would do.",
	}, func(ctx context.Context, a struct {
		ID       string `json:"id,omitempty" jsonschema:"ID of a dead letter: shows it with its payload."`
		Before   int64  `json:"before,omitempty" jsonschema:"nextBefore of the previous page."`
		PageSize int    `json:"page_size,omitempty" jsonschema:"Dead letters per page: 1 to 100, default 20."`
	},
	) (any, error) {
		if a.ID != "" {
			return s.find(ctx, "dead letter", a.ID, "call the tool without id to list them", "/dead-letters/"+url.PathEscape(a.ID))
		}
		q := url.Values{"page_size": {pageSize(a.PageSize, usualPage, maxPage)}}
		if a.Before > 0 {
			q.Set("before", strconv.FormatInt(a.Before, 10))
		}
		return s.get(ctx, "/dead-letters", q)
	})

	read(s, tool{
		"webhooks", "List webhooks",
		"Lists webhooks, to which facts about operations and orchestrations are sent: their filter, whether they are active, disabled or failing, the last " +
			"error, and how many events wait.",
	}, func(ctx context.Context, _ struct{}) (any, error) { return s.get(ctx, "/webhooks", nil) })

	read(s, tool{
		"audit", "List actions of operators",
		"Lists what people and other clients have changed or tried to change: who, when, which action on what, and the outcome. Newest first.",
	}, func(ctx context.Context, a auditArgs) (any, error) {
		q := url.Values{"page_size": {pageSize(a.PageSize, usualPage, maxPage)}}
		put(q, "target", a.Target)
		put(q, "name", a.Name)
		put(q, "action", a.Action)
		put(q, "outcome", string(a.Outcome))
		if a.Page > 0 {
			q.Set("page", strconv.Itoa(a.Page))
		}
		return s.get(ctx, "/actions", q)
	})

	read(s, tool{
		"metrics", "Read metrics",
		"Reads current values of metrics of the orchestrator (with keb up: of all processes) whose names contain a text. Counters count since the process " +
			"started: read twice for a rate. Of a histogram only count and sum are shown. Useful: external_requests (calls of external systems by " +
			"code), external_breaker_open, dead_letters, commands_ignored, consumer_pending, gauges_fresh, sweep_lag.",
	}, s.metrics)
}

// withoutZeros leaves out members that are 0.
func withoutZeros(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = withoutZeros(v[i])
		}
	case map[string]any:
		for name, e := range v {
			if n, ok := e.(float64); ok && n == 0 {
				delete(v, name)
				continue
			}
			v[name] = withoutZeros(e)
		}
	}
	return v
}

// members returns a member of each object of a list.
func members(from any, name string) []string {
	list, _ := from.([]any)
	var out []string
	for _, e := range list {
		object, _ := e.(map[string]any)
		if text, ok := object[name].(string); ok {
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return out
}

// processes selects a type or a step of the definitions; without both, the names of the steps by stage.
func processes(out map[string]any, kind, step string) any {
	var found []any
	list, _ := out["data"].([]any)
	for _, p := range list {
		process, _ := p.(map[string]any)
		stages, _ := process["stages"].([]any)
		switch {
		case step != "":
			for _, st := range stages {
				stage, _ := st.(map[string]any)
				for _, one := range matching(stage["steps"], map[string]string{"name": step}) {
					found = append(found, map[string]any{"operation": process["operation"], "stage": stage["name"], "step": one})
				}
			}
		case kind == process["operation"]:
			found = append(found, process)
		case kind == "":
			names := make([]any, len(stages))
			for i, st := range stages {
				stage, _ := st.(map[string]any)
				var steps []any
				all, _ := stage["steps"].([]any)
				for _, one := range all {
					object, _ := one.(map[string]any)
					steps = append(steps, fmt.Sprintf("%v (%v)", object["name"], object["worker"]))
				}
				names[i] = map[string]any{"stage": stage["name"], "steps": steps}
			}
			found = append(found, map[string]any{"operation": process["operation"], "timeout": process["timeout"], "stages": names})
		}
	}
	return map[string]any{"data": found, "count": len(found)}
}

// metrics reads the Prometheus text format. It is simple: one series per line.
func (s *server) metrics(ctx context.Context, a metricsArgs) (any, error) {
	raw, err := s.deps.Reader.Get(ctx, "/metrics", nil)
	if err != nil {
		return nil, err
	}
	series, help, total := []any{}, map[string]any{}, 0
	helps := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if text, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, meaning, _ := strings.Cut(text, " ")
			helps[name] = meaning
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		name, labels, _ := strings.Cut(line[:at], "{")
		if !strings.Contains(name, a.Name) || strings.HasSuffix(name, "_bucket") || !hasLabels(labels, a.Labels) || line[at+1:] == "0" && !a.Zero {
			continue
		}
		if total++; total > maxSeries {
			continue
		}
		base := name
		for _, suffix := range []string{"_count", "_sum"} {
			if _, ok := helps[base]; !ok {
				base = strings.TrimSuffix(base, suffix)
			}
		}
		help[base] = helps[base]
		series = append(series, line)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the metrics: %w", err)
	}
	out := map[string]any{"series": series, "totalCount": total, "meaning": help}
	if total == 0 {
		out["note"] = "No series match. Those with the value 0 are shown only with zero: true."
	}
	return out, nil
}

// hasLabels reports whether the labels of a series, without the opening brace, have these values.
func hasLabels(labels string, want map[string]string) bool {
	for name, value := range want {
		if l := "," + labels; !strings.Contains(l, ","+name+"="+strconv.Quote(value)) {
			return false
		}
	}
	return true
}
