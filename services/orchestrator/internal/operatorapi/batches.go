package operatorapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/batch"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/hold"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// maxSample is the number of operations in the preview of a batch.
const maxSample = 10

// Batches stores batches.
type Batches interface {
	Select(ctx context.Context, f store.Filter) (int, error)
	Create(ctx context.Context, b *batch.Batch, f store.Filter, check func(total int) error) error
	Get(ctx context.Context, id string) (*batch.Batch, error)
	List(ctx context.Context, f store.BatchFilter) ([]*batch.Batch, int, error)
	Members(ctx context.Context, id string, f store.BatchMemberFilter) ([]batch.Member, int, error)
	Change(ctx context.Context, id string, to batch.State, now time.Time) (*batch.Batch, error)
}

func (a *API) batchRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /batches", a.answer(a.listBatches))
	a.actionRoute(mux, "POST /batches", "order_batch", a.orderBatch)
	mux.HandleFunc("GET /batches/{id}", a.answer(a.getBatch))
	mux.HandleFunc("GET /batches/{id}/operations", a.answer(a.listBatchResults))
	a.actionRoute(mux, "POST /batches/{id}/pause", "pause_batch", a.changeBatch(batch.Paused))
	a.actionRoute(mux, "POST /batches/{id}/resume", "resume_batch", a.changeBatch(batch.Running))
	a.actionRoute(mux, "POST /batches/{id}/cancel", "cancel_batch", a.changeBatch(batch.Cancelled))
}

func viewBatch(b *batch.Batch) operator.Batch {
	return operator.Batch{
		ID: b.ID, Action: operator.BatchAction(b.Action), Stage: b.Stage, Step: b.Step, Filter: b.Filter, Reason: b.Reason, CreatedBy: b.By,
		CreatedAt: b.CreatedAt, Rate: b.Rate, State: operator.BatchState(b.State), Total: b.Total, Waiting: b.Left(), Done: b.Done,
		Failed: b.Failed, Skipped: b.Skipped, UpdatedAt: b.UpdatedAt,
	}
}

// filterParameters are the parameters of a filter of operations.
var filterParameters = []string{
	"state", "type", "plan", "instance", "global_account", "region", "step", "worker", "system", "waiting", "orchestration", "since", "until", "q",
	"error", "hold", "limit_name", "finished_since", "finished_until", "filter",
}

// severalParameters may be repeated, and may contain commas.
var severalParameters = []string{"state", "type", "plan", "waiting"}

// parseFilter parses the filter of a batch. It rejects parameters that the list of operations would ignore, also in part, because a batch without
// them would act on more operations than intended.
func parseFilter(filter string) (*question, url.Values, error) {
	values, err := url.ParseQuery(filter)
	if err != nil {
		return nil, nil, errors.New("must have the form name=value&name=value, with escapes such as %20")
	}
	some := false
	for name, list := range values {
		if !slices.Contains(filterParameters, name) {
			return nil, nil, fmt.Errorf("unknown parameter %.50q: allowed are %s", name, strings.Join(filterParameters, ", "))
		}
		if len(list) > 1 && !slices.Contains(severalParameters, name) {
			return nil, nil, fmt.Errorf("%s: must not be repeated", name)
		}
		given := strings.TrimSpace(strings.Join(list, ","))
		if given != "" && strings.Trim(given, ", ") == "" {
			return nil, nil, fmt.Errorf("%s %.50q: has no value", name, given)
		}
		some = some || given != ""
	}
	if !some {
		return nil, nil, errors.New("must not be empty: an action on all operations is not possible")
	}
	q, err := parseQuestion(values)
	return q, values, err
}

// orderBatch stores a batch, or previews it.
func (a *API) orderBatch(r *http.Request) (any, error) {
	var body operator.BatchRequest
	if err := decode(r, maxBody, `"action", "filter", "reason" and others`, &body); err != nil {
		return nil, err
	}
	body.By = by(r.Context(), body.By)
	note(r.Context(), func(a *store.Action) { a.Detail = describeBatch(&body) })
	q, values, err := parseFilter(body.Filter)
	if err != nil {
		return nil, badRequest(fmt.Errorf("filter: %w", err))
	}
	if body.Action == operator.BatchHold || body.Action == operator.BatchResume {
		return a.previewHold(r, &body, q, values)
	}
	order := batch.Order{
		Action: batch.Action(body.Action), Stage: body.Stage, Step: body.Step, Filter: values.Encode(), Reason: body.Reason, By: body.By,
		Rate: batch.DefaultRate,
	}
	if body.Rate != nil {
		order.Rate = *body.Rate
	}
	if body.DryRun && order.Reason == "" {
		order.Reason = "preview"
	}
	if err := order.Validate(); err != nil {
		return nil, badRequest(err)
	}
	if err := a.locate(r.Context(), q); err != nil {
		return nil, err
	}
	if body.DryRun {
		return a.previewBatch(r, q, &order)
	}
	b := &batch.Batch{Order: order, ID: uuid.Must(uuid.NewV7()).String(), CreatedAt: a.deps.Now().UTC()}
	err = a.deps.Batches.Create(r.Context(), b, q.Filter, func(total int) error { return checkTotal(total, body.Expected) })
	if err != nil {
		return nil, err
	}
	note(r.Context(), func(a *store.Action) { a.Target = b.ID })
	a.deps.Log.Info("batch ordered", "batch_id", b.ID, "action", string(b.Action), "operations", b.Total, "by", b.By)
	a.deps.WakeBatches()
	return accepted{viewBatch(b)}, nil
}

// errTotal means that a batch must not have this number of operations.
var errTotal = errors.New("the batch is not ordered")

func checkTotal(total, expected int) error {
	switch {
	case total == 0:
		return fmt.Errorf("%w: no operation matches the filter", errTotal)
	case total > batch.MaxOperations:
		return fmt.Errorf("%w: more than %d operations match the filter; order several batches with narrower filters", errTotal, batch.MaxOperations)
	case expected > 0 && total > expected:
		return fmt.Errorf("%w: %d operations match the filter now, and %d did in the preview; preview it again", errTotal, total, expected)
	}
	return nil
}

// describeBatch describes an order in the record of actions.
func describeBatch(r *operator.BatchRequest) string {
	text := string(r.Action)
	switch {
	case r.Stage != "":
		text += " from " + operator.RetryFrom(r.Stage, r.Step)
	case r.Step != "":
		text += " " + r.Step
	}
	text += " of " + r.Filter
	if r.DryRun {
		return "preview: " + text
	}
	return text + ": " + r.Reason
}

// previewBatch answers what an order would do.
func (a *API) previewBatch(r *http.Request, q *question, o *batch.Order) (any, error) {
	out, rows, err := a.sample(r.Context(), q)
	if err != nil {
		return nil, err
	}
	for i := range out.Sample {
		s := &out.Sample[i]
		switch o.Action {
		case batch.Retry:
			steps, err := a.deps.Actor.PreviewRetry(r.Context(), rows[i].Operation.ID, engine.Retry{By: o.By, Stage: o.Stage, Step: o.Step})
			switch {
			case errors.Is(err, engine.ErrNotPossible) || errors.Is(err, store.ErrNotFound):
				s.Problem = err.Error()
			case err != nil:
				return nil, err
			}
			s.Steps = viewPlanned(steps)
		case batch.Cancel:
			if s.Operation.State.Final() {
				s.Problem = fmt.Sprintf("the operation has ended as %s", s.Operation.State)
			}
		default:
			if s.Operation.State != event.InProgress {
				s.Problem = fmt.Sprintf("the operation is %s", s.Operation.State)
			} else if s.Operation.Step != o.Step {
				s.Problem = fmt.Sprintf("the operation is at step %s, not %s", s.Operation.Step, o.Step)
			}
		}
	}
	return out, nil
}

// sample counts the operations of a filter, and returns the newest of them.
func (a *API) sample(ctx context.Context, q *question) (out *operator.BatchPreview, rows []*store.Row, err error) {
	out = &operator.BatchPreview{Sample: []operator.BatchSample{}}
	if out.Count, err = a.deps.Batches.Select(ctx, q.Filter); err != nil {
		return nil, nil, err
	}
	q.Limit = maxSample
	list, err := a.deps.Operations.List(ctx, q.Filter)
	if err != nil {
		return nil, nil, err
	}
	views, err := a.views(ctx, list.Rows)
	if err != nil {
		return nil, nil, err
	}
	for i := range views {
		out.Sample = append(out.Sample, operator.BatchSample{Operation: views[i]})
	}
	return out, list.Rows, nil
}

// previewHold answers with the scope of the hold for a filter, or with the holds that have the scope.
func (a *API) previewHold(r *http.Request, body *operator.BatchRequest, q *question, values url.Values) (any, error) {
	scope, err := holdScope(q, values)
	if err == nil && !body.DryRun {
		err = fmt.Errorf("action %s: is only a preview; create or release the hold with the scope of the preview", body.Action)
	}
	if err != nil {
		return nil, badRequest(err)
	}
	if err := a.locate(r.Context(), q); err != nil {
		return nil, err
	}
	out, _, err := a.sample(r.Context(), q)
	if err != nil {
		return nil, err
	}
	out.Scope = (*operator.HoldScope)(&scope)
	if body.Action == operator.BatchResume {
		holds, err := a.deps.Holds.Holds(r.Context())
		if err != nil {
			return nil, err
		}
		counts, err := a.deps.Holds.HeldBy(r.Context())
		if err != nil {
			return nil, err
		}
		for i := range holds {
			if h := &holds[i]; h.Scope == scope && h.Active(a.deps.Now()) {
				out.Holds = append(out.Holds, viewHold(h, counts[h.ID]))
			}
		}
		if len(out.Holds) == 0 {
			return nil, &refusal{http.StatusConflict, fmt.Errorf("no hold has the scope %s; see the list of holds", out.Scope)}
		}
	}
	return out, nil
}

// holdScope returns the scope of a hold that contains exactly what a filter selects among the operations that have not ended.
func holdScope(q *question, values url.Values) (scope hold.Scope, err error) {
	for _, name := range []string{
		"state", "waiting", "orchestration", "since", "until", "q", "error", "hold", "limit_name", "finished_since", "finished_until", "filter",
	} {
		if values.Get(name) != "" {
			return scope, fmt.Errorf("filter: a hold has no scope for %s; use instance, global_account, region, plan, type, step, worker or system, one value of each", name)
		}
	}
	if len(q.Plans) > 1 || len(q.Types) > 1 {
		return scope, errors.New("filter: a hold has one plan and one type; create a hold for each of them")
	}
	scope = hold.Scope{Instance: q.InstanceID, GlobalAccount: q.GlobalAccount, Region: q.Region, Step: q.step, Worker: q.worker, System: q.system}
	if len(q.Plans) == 1 {
		scope.Plan = q.Plans[0]
	}
	if len(q.Types) == 1 {
		scope.Type = q.Types[0]
	}
	return scope, nil
}

func (a *API) listBatches(r *http.Request) (any, error) {
	var f store.BatchFilter
	var err error
	if f.State, f.Limit, f.Offset, err = parseList(r.URL.Query(), batch.States()); err != nil {
		return nil, badRequest(err)
	}
	list, total, err := a.deps.Batches.List(r.Context(), f)
	if err != nil {
		return nil, err
	}
	return listOf(list, total, viewBatch), nil
}

func (a *API) getBatch(r *http.Request) (any, error) {
	b, err := a.deps.Batches.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, missing(err, "batch", r.PathValue("id"))
	}
	return viewBatch(b), nil
}

func (a *API) listBatchResults(r *http.Request) (any, error) {
	var f store.BatchMemberFilter
	var err error
	if f.State, f.Limit, f.Offset, err = parseList(r.URL.Query(), batch.ResultStates()); err != nil {
		return nil, badRequest(err)
	}
	b, err := a.deps.Batches.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, missing(err, "batch", r.PathValue("id"))
	}
	list, total, err := a.deps.Batches.Members(r.Context(), b.ID, f)
	if err != nil {
		return nil, err
	}
	return listOf(list, total, func(m batch.Member) operator.BatchResult {
		return operator.BatchResult{
			OperationID: m.OperationID, InstanceID: m.InstanceID, State: operator.BatchResultState(m.State), Error: m.Error, At: optional(m.At),
		}
	}), nil
}

// changeBatch pauses, resumes or cancels a batch.
func (a *API) changeBatch(to batch.State) handler {
	return func(r *http.Request) (any, error) {
		b, err := a.deps.Batches.Change(r.Context(), r.PathValue("id"), to, a.deps.Now().UTC())
		if err != nil {
			return nil, missing(err, "batch", r.PathValue("id"))
		}
		a.deps.Log.Info("batch changed", "batch_id", b.ID, "state", string(b.State), "by", caller(r.Context()).Name)
		a.deps.WakeBatches()
		return viewBatch(b), nil
	}
}
