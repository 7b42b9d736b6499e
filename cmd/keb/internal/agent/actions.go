package agent

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
)

// by is the name of the caller in the audit of a system without access control.
const by = "keb mcp"

type retryArgs struct {
	ID    string `json:"id" jsonschema:"ID of the failed operation."`
	Stage string `json:"stage,omitempty" jsonschema:"Stage to retry from: the failed one (default) or an earlier one."`
	Step  string `json:"step,omitempty" jsonschema:"Step of that stage to retry from; default: its first one. The steps before it stay as they are. Needs stage."`
	approved
}

type skipArgs struct {
	ID   string `json:"id" jsonschema:"ID of the operation."`
	Step string `json:"step" jsonschema:"The current step of the operation. The request is rejected if the operation is at another step by then."`
	approved
}

type cancelArgs struct {
	ID string `json:"id" jsonschema:"ID of the operation."`
	approved
}

type batchArgs struct {
	Action batchAction    `json:"action" jsonschema:"What to do with every operation that matches."`
	Filter operationsArgs `json:"filter" jsonschema:"Which operations: the arguments of the tool operations, without cursor and page_size. At least one filter is required. Use times, not durations, so that the preview and the change select the same operations."`
	Stage  string         `json:"stage,omitempty" jsonschema:"For retry: stage to retry from; default: the failed one."`
	Step   string         `json:"step,omitempty" jsonschema:"For skip: the step to skip (required). Operations at another step are not changed. For retry: the step of the stage to retry from."`
	Reason string         `json:"reason" jsonschema:"Why. It is stored with the batch."`
	Rate   *float64       `json:"rate,omitempty" jsonschema:"Operations per second, at most; default 50, 0 means no limit."`
	// Expected is the number of operations that the approved preview has shown.
	Expected int `json:"expected" jsonschema:"How many operations you expect to match, as the tool operations counts them. The request is rejected if more match."`
	approved
}

type batchChangeArgs struct {
	ID     string      `json:"id" jsonschema:"ID of the batch."`
	Change batchChange `json:"change" jsonschema:"pause, resume or cancel. Operations that have been changed stay changed."`
	approved
}

type orchestrationChangeArgs struct {
	ID     string              `json:"id" jsonschema:"ID of the orchestration."`
	Change orchestrationChange `json:"change" jsonschema:"pause: start no further operations; resume; approve: continue after a canary; cancel: those that have started end first."`
	approved
}

func (s *server) addActions() {
	write(s, change[retryArgs]{
		tool: tool{"retry_operation", "Retry a failed operation", "Retries a failed operation from its failed stage, or from an earlier one, or from a step of it. Steps of that " +
			"stage run again; the preview lists what becomes of each step. If losesMemory is true and a step needs what an earlier step put into the stage " +
			"memory, the stage starts at its first step."},
		preview: func(ctx context.Context, a *retryArgs) (any, error) {
			plan, _, err := s.deps.Operations.PreviewRetry(ctx, a.ID, a.Stage, a.Step)
			if err != nil {
				return nil, err
			}
			return s.about(ctx, a.ID, map[string]any{"action": "retry", "steps": plan.Steps, "losesMemory": plan.LosesMemory, "sent": plan.Sent})
		},
		do: func(ctx context.Context, a *retryArgs) (any, error) {
			return s.act(ctx, a.ID, "retry", operator.ActionRequest{By: by, Stage: a.Stage, Step: a.Step})
		},
	})
	write(s, change[skipArgs]{
		destructive: true,
		tool: tool{"skip_step", "Skip a step", "Skips the current step of an operation, which then continues with the next one. The work of the step is not " +
			"done: only skip a step if the operation can succeed without it."},
		preview: func(ctx context.Context, a *skipArgs) (any, error) {
			return s.about(ctx, a.ID, map[string]any{"action": "skip the step " + a.Step})
		},
		do: func(ctx context.Context, a *skipArgs) (any, error) {
			return s.act(ctx, a.ID, "skip", operator.ActionRequest{By: by, Step: a.Step})
		},
	})
	write(s, change[cancelArgs]{
		destructive: true,
		tool: tool{"cancel_operation", "Cancel an operation", "Cancels an operation that has not ended. What its steps have made stays until a deprovisioning; " +
			"a running step ends first."},
		preview: func(ctx context.Context, a *cancelArgs) (any, error) {
			return s.about(ctx, a.ID, map[string]any{"action": "cancel"})
		},
		do: func(ctx context.Context, a *cancelArgs) (any, error) {
			return s.act(ctx, a.ID, "cancel", operator.ActionRequest{By: by})
		},
	})
	write(s, change[batchArgs]{
		destructive: true,
		tool: tool{"order_batch", "Act on many operations", "Orders a batch: retries, cancels or skips a step of all operations that match a filter, at a bounded " +
			"rate. The preview has the number of operations, and for a sample what would happen. The tool batches shows the progress."},
		preview: s.previewBatch,
		do: func(ctx context.Context, a *batchArgs) (any, error) {
			request, err := s.batch(a)
			if err != nil {
				return nil, err
			}
			batch, _, err := s.deps.Batches.OrderBatch(ctx, request)
			return batch, err
		},
	})
	write(s, change[batchChangeArgs]{
		tool: tool{"change_batch", "Pause, resume or cancel a batch", "Pauses, resumes or cancels a batch."},
		preview: func(ctx context.Context, a *batchChangeArgs) (any, error) {
			batch, err := s.find(ctx, "batch", a.ID, `the tool "batches" lists them`, "/batches/"+url.PathEscape(a.ID))
			return map[string]any{"action": a.Change, "batch": batch}, err
		},
		do: func(ctx context.Context, a *batchChangeArgs) (any, error) {
			batch, _, err := s.deps.Batches.ChangeBatch(ctx, a.ID, string(a.Change))
			return batch, err
		},
	})
	write(s, change[orchestrationChangeArgs]{
		destructive: true,
		tool:        tool{"change_orchestration", "Pause, resume, approve or cancel an orchestration", "Pauses, resumes, approves or cancels an orchestration."},
		preview: func(ctx context.Context, a *orchestrationChangeArgs) (any, error) {
			found, err := s.find(ctx, "orchestration", a.ID, `the tool "orchestrations" lists them`, "/orchestrations/"+url.PathEscape(a.ID))
			return map[string]any{"action": a.Change, "orchestration": found}, err
		},
		do: s.changeOrchestration,
	})
}

// changeOrchestration changes an orchestration.
func (s *server) changeOrchestration(ctx context.Context, a *orchestrationChangeArgs) (any, error) {
	if a.Change == "cancel" {
		return s.deps.Orchestrations.CancelOrchestration(ctx, a.ID)
	}
	changed, _, err := s.deps.Orchestrations.ChangeOrchestration(ctx, a.ID, string(a.Change))
	return changed, err
}

// about adds the operation to a preview.
func (s *server) about(ctx context.Context, id string, preview map[string]any) (any, error) {
	out, err := s.find(ctx, "operation", id, `the tool "operations" with search finds operations by the beginning of an ID`, operationPath(id))
	if err != nil {
		return nil, err
	}
	preview["operation"] = pick(out, operationRow...)
	return preview, nil
}

func (s *server) act(ctx context.Context, id, action string, request operator.ActionRequest) (any, error) {
	err := s.deps.Operations.Act(ctx, id, action, request)
	if errors.Is(err, operator.ErrNotFound) {
		return nil, fmt.Errorf("there is no operation %q", id)
	}
	return map[string]string{"operation": id, "action": action, "next": `the tool "operation" shows what has become of it`}, err
}

// batch returns the request of a batch.
func (s *server) batch(a *batchArgs) (operator.BatchRequest, error) {
	for name, value := range map[string]string{"since": a.Filter.Since, "until": a.Filter.Until, "finished_since": a.Filter.FinishedSince} {
		if _, err := time.ParseDuration(value); err == nil {
			return operator.BatchRequest{}, fmt.Errorf("filter.%s %q: must be a time such as 2026-11-21T22:00:00Z", name, value)
		}
	}
	if a.Filter.Cursor != "" || a.Filter.PageSize != 0 {
		return operator.BatchRequest{}, errors.New("filter: cursor and page_size are not allowed")
	}
	q, err := a.Filter.query(s.deps.Now())
	if err != nil {
		return operator.BatchRequest{}, err
	}
	return operator.BatchRequest{
		Action: operator.BatchAction(a.Action), Filter: q.Encode(), Stage: a.Stage, Step: a.Step, Reason: a.Reason, Rate: a.Rate, Expected: a.Expected, By: by,
	}, nil
}

func (s *server) previewBatch(ctx context.Context, a *batchArgs) (any, error) {
	request, err := s.batch(a)
	if err != nil {
		return nil, err
	}
	request.DryRun = true
	preview, _, err := s.deps.Batches.PreviewBatch(ctx, request)
	if err != nil {
		return nil, err
	}
	if preview.Count > a.Expected {
		return nil, fmt.Errorf("expected: %d operations match, more than %d; nothing was done. Check the filter with the tool operations", preview.Count, a.Expected)
	}
	sample := make([]any, len(preview.Sample))
	for i, p := range preview.Sample {
		row := pick(tidy(p.Operation, true), "id", "type", "state", "instanceId", "plan", "step", "error")
		if p.Problem != "" {
			row["problem"] = p.Problem
		}
		sample[i] = row
	}
	return map[string]any{"action": a.Action, "operations": preview.Count, "sample": sample, "reason": a.Reason}, nil
}

type holdArgs struct {
	Operation     string              `json:"operation,omitempty" jsonschema:"ID of an operation."`
	Instance      string              `json:"instance,omitempty" jsonschema:"ID of an instance."`
	GlobalAccount string              `json:"global_account,omitempty" jsonschema:"ID of a global account."`
	Plan          string              `json:"plan,omitempty" jsonschema:"Name or ID of a plan."`
	Region        string              `json:"region,omitempty" jsonschema:"Region of the hyperscaler."`
	Type          event.OperationType `json:"type,omitempty" jsonschema:"Type of the operations."`
	Step          string              `json:"step,omitempty" jsonschema:"Name of a step: operations are held when they reach it."`
	Worker        string              `json:"worker,omitempty" jsonschema:"Name of a worker: operations are held at its steps."`
	System        string              `json:"system,omitempty" jsonschema:"Name of an external system: operations are held at steps that call it."`
	Orders        operator.Orders     `json:"orders,omitempty" jsonschema:"wait (default) accepts new orders and holds them; reject makes the broker reject them with the reason."`
	Until         string              `json:"until,omitempty" jsonschema:"When the hold ends by itself: a time such as 2026-11-21T22:00:00Z. Without it, it must be released."`
	Reason        string              `json:"reason" jsonschema:"Why. It is shown with every held operation, and to the platform if orders are rejected."`
	approved
}

type releaseArgs struct {
	ID string `json:"id" jsonschema:"ID of the hold."`
	approved
}

type limitsArgs struct {
	Document string `json:"document" jsonschema:"The whole new document in YAML. It replaces the document that the tool limits shows."`
	approved
}

// request returns the request of the hold.
func (a *holdArgs) request() (operator.HoldRequest, error) {
	r := operator.HoldRequest{
		Scope: operator.HoldScope{
			Operation: a.Operation, Instance: a.Instance, GlobalAccount: a.GlobalAccount, Plan: a.Plan, Region: a.Region, Type: a.Type, Step: a.Step,
			Worker: a.Worker, System: a.System,
		},
		Reason: a.Reason, Orders: a.Orders, By: by,
	}
	if r.Scope == (operator.HoldScope{}) {
		return r, errors.New("a hold needs a scope: at least one of operation, instance, global_account, plan, region, type, step, worker and system")
	}
	if strings.TrimSpace(a.Reason) == "" {
		return r, errors.New("reason: must not be empty")
	}
	if a.Until != "" {
		at, err := time.Parse(time.RFC3339, a.Until)
		if err != nil {
			return r, fmt.Errorf("until %q: must be a time such as 2026-11-21T22:00:00Z", a.Until)
		}
		r.Until = &at
	}
	return r, nil
}

func (s *server) addScopes() {
	write(s, change[holdArgs]{
		tool: tool{"create_hold", "Hold operations", "Creates a hold: operations in its scope do not start and send no commands until it is released. All given " +
			"members of the scope must match. Commands in flight finish."},
		preview: s.previewHold,
		do: func(ctx context.Context, a *holdArgs) (any, error) {
			request, err := a.request()
			if err != nil {
				return nil, err
			}
			hold, _, err := s.deps.Holds.CreateHold(ctx, request)
			return hold, err
		},
	})
	write(s, change[releaseArgs]{
		tool: tool{"release_hold", "Release a hold", "Releases a hold: its operations continue where they were."},
		preview: func(ctx context.Context, a *releaseArgs) (any, error) {
			holds, err := s.get(ctx, "/holds", nil)
			if err != nil {
				return nil, err
			}
			found := matching(holds["data"], map[string]string{"id": a.ID})
			if len(found) == 0 || a.ID == "" {
				return nil, fmt.Errorf("there is no hold %q; the tool \"holds\" lists them", a.ID)
			}
			return map[string]any{"action": "release", "hold": found[0]}, nil
		},
		do: func(ctx context.Context, a *releaseArgs) (any, error) {
			return map[string]string{"released": a.ID}, s.deps.Holds.ReleaseHold(ctx, a.ID)
		},
	})
	write(s, change[limitsArgs]{
		destructive: true,
		tool: tool{"apply_limits", "Apply limits", "Replaces the document with the limits of concurrency and rate. The preview has the differences to the " +
			"limits that apply now."},
		preview: func(ctx context.Context, a *limitsArgs) (any, error) {
			answer, _, err := s.deps.Holds.ApplyLimits(ctx, operator.LimitsRequest{Document: a.Document, DryRun: true})
			if err != nil {
				return nil, err
			}
			return map[string]any{"action": "replace the limits", "changes": answer.Changes}, nil
		},
		do: func(ctx context.Context, a *limitsArgs) (any, error) {
			answer, _, err := s.deps.Holds.ApplyLimits(ctx, operator.LimitsRequest{Document: a.Document, By: by})
			return answer, err
		},
	})
}

// previewHold counts the operations that have not ended in the scope. It is an estimate: a hold also covers later operations.
func (s *server) previewHold(ctx context.Context, a *holdArgs) (any, error) {
	request, err := a.request()
	if err != nil {
		return nil, err
	}
	q := url.Values{"state": {"pending,in progress"}, "page_size": {"5"}}
	put(q, "instance", a.Instance)
	put(q, "global_account", a.GlobalAccount)
	put(q, "plan", a.Plan)
	put(q, "region", a.Region)
	put(q, "type", string(a.Type))
	put(q, "step", a.Step)
	put(q, "worker", a.Worker)
	put(q, "system", a.System)
	put(q, "q", a.Operation)
	out, err := s.get(ctx, "/operations", q)
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"action": "hold", "scope": request.Scope.String(), "orders": request.Orders, "until": request.Until, "reason": request.Reason,
		"operationsNow": out["totalCount"], "sample": pickAll(out["data"], "id", "type", "state", "instanceId", "plan", "step"),
	}, nil
}
