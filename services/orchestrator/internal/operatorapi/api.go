// Package operatorapi serves the operator API: over HTTP, operations, processes, workers and the actions of operators; over the bus, the
// status of operations.
package operatorapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/mask"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/census"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
	"github.com/kyma-project/keb/services/orchestrator/internal/liveness"
	"github.com/kyma-project/keb/services/orchestrator/internal/ramp"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

const (
	maxPageSize     = 1000
	defaultPageSize = 100
	// maxHistory limits the history lines in the answer for one operation, and maxAsked the operations of one request over the bus.
	maxHistory = 500
	maxAsked   = 500
	maxBody    = 64 << 10
)

// Operations reads operations.
type Operations interface {
	List(ctx context.Context, f store.Filter) (*store.List, error)
	Read(ctx context.Context, ids []string) ([]*store.Row, error)
	Awaited(ctx context.Context, ids []string) ([]*store.Row, error)
	Running(ctx context.Context, instanceIDs []string) (map[string]string, error)
	History(ctx context.Context, operationID string) ([]engine.Entry, error)
	Recorded(ctx context.Context, ids []string) (map[string]time.Time, error)
	Samples(ctx context.Context, polls []store.PollsSince, unserved store.Places) ([]store.Sample, error)
	Ended(ctx context.Context) ([]store.Ended, error)
	Oldest(ctx context.Context, since map[event.OperationType]time.Time) ([]store.Oldest, error)
	Admission(ctx context.Context, ids []string) (store.Admission, error)
	Positions(ctx context.Context, operations []string) (map[string]int, error)
}

// Counts counts what ended recently, by minute.
type Counts interface {
	Since(ctx context.Context, since time.Time) (map[store.TallyKey]int64, error)
}

// Census counts the operations that have not ended, and the commands that wait on the bus.
type Census interface {
	Read(ctx context.Context) (census.Result, error)
	Group(ctx context.Context, g store.Group) (census.Group, error)
	Depths(ctx context.Context) (map[string]census.Depth, error)
}

// Definitions finds process definitions.
type Definitions interface {
	Set() process.Set
	All(ctx context.Context) ([]*process.Process, error)
	Pinned(ctx context.Context, hash string) (*process.Process, error)
}

// Workers discovers live workers.
type Workers interface {
	Serves(worker, step string) bool
	ServesRamped(worker, step, version string) bool
	Seen(worker string) time.Time
	Workers() []liveness.Worker
}

// Progress finds how far running steps are.
type Progress interface {
	Of(worker string, command event.CommandRef) (liveness.Report, bool)
}

// Actor applies the actions of operators.
type Actor interface {
	Act(ctx context.Context, operationID string, e engine.Event) error
	PreviewRetry(ctx context.Context, operationID string, e engine.Retry) ([]engine.Planned, error)
}

// Deps contains the dependencies of the API. All are required except Registerer.
type Deps struct {
	Operations  Operations
	Troubles    Troubles
	Census      Census
	Definitions Definitions
	Workers     Workers
	Progress    Progress
	Actor       Actor
	Facts       Facts
	Counts      Counts
	Changes     *Hub
	// Orchestrations stores orchestrations. Wake is called after a change to them.
	Orchestrations Orchestrations
	Wake           func()
	FailedSteps    FailedSteps
	// Memberships finds the operations of orchestrations by instance, and Asker asks the broker for instances.
	Memberships Memberships
	Asker       Asker
	// Plans returns the names of all plans.
	Plans func(ctx context.Context) ([]string, error)
	// Batches stores batches. WakeBatches is called after a change to them.
	Batches     Batches
	WakeBatches func()
	// Webhooks reads webhooks, and WebhookService changes them. LocalWebhooks allows loopback addresses.
	Webhooks       Webhooks
	WebhookService WebhookService
	LocalWebhooks  bool
	// Actions stores audit records.
	Actions Actions
	// Holds stores holds. HoldsChanged is called after a change to them.
	Holds        Holds
	HoldsChanged func(ctx context.Context) error
	// Ramps stores ramps. RampsChanged is called after a change to them, CurrentRamps returns those that apply, and VersionOf the ramped version
	// to which an operation goes.
	Ramps        Ramps
	RampsChanged func(ctx context.Context) error
	CurrentRamps func() []ramp.Ramp
	VersionOf    func(op *event.Operation, worker string, startedAt time.Time) string
	// Limits stores the limits. LimitsChanged is called after a change to them, and CurrentLimits returns those that apply.
	Limits        Limits
	LimitsChanged func(ctx context.Context) error
	CurrentLimits func() *limit.Set
	// Overlays combines and changes overlays, and OverlayVersions reads their versions.
	Overlays        Overlays
	OverlayVersions OverlayVersions
	Signals         Signals
	DeadLetters     DeadLetters
	Commands        Commands
	// Links lead from an operation to other systems; nil for none.
	Links Links
	Now   func() time.Time
	Log   *slog.Logger
	// Registerer registers the metrics; nil disables them.
	Registerer prometheus.Registerer
}

// API serves the operator API.
type API struct {
	deps    Deps
	mux     *http.ServeMux
	metrics *metrics
	// actions contains the names of the actions by route pattern.
	actions map[string]string
	streams audience
	// samples caches a query that reads every operation that has not ended.
	samples *census.Value[[]store.Sample]
	ended   *census.Value[[]store.Ended]
	counts  *census.Value[map[store.TallyKey]int64]
	failed  *census.Value[[]store.FailedAt]
	// errorGroups caches the answer of errors without its calm operations, and lastHour what ended in the last hour.
	errorGroups *census.Value[*operator.Errors]
	lastHour    *census.Value[*hour]
}

// New returns an API.
func New(deps Deps) *API {
	a := &API{
		deps: deps, mux: http.NewServeMux(), actions: map[string]string{},
		ended: census.NewValue(deps.Operations.Ended),
		counts: census.NewValue(func(ctx context.Context) (map[store.TallyKey]int64, error) {
			return deps.Counts.Since(ctx, minuteBefore(deps.Now().UTC()))
		}),
	}
	a.samples = census.NewValue(a.stuckSamples)
	a.failed = census.NewValue(func(ctx context.Context) ([]store.FailedAt, error) {
		return deps.FailedSteps.FailedAt(ctx, deps.Now().UTC().Add(-failedPeriod).Truncate(time.Minute))
	})
	a.errorGroups = census.NewValue(a.countErrors)
	a.lastHour = census.NewValue(a.countHour)
	a.routes(a.mux)
	a.metrics = newMetrics(deps.Registerer, a.actions)
	return a
}

// Handler serves the routes of the API. The caller must check access before.
func (a *API) Handler() http.Handler {
	answers := compressed(a.mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
			// Ignoring the invalid part would answer more than the client asked for.
			a.fail(w, http.StatusBadRequest, errors.New("the query is invalid: it must have the form name=value&name=value, with escapes such as %20"))
			return
		}
		if r.URL.Path == StreamPath {
			a.mux.ServeHTTP(w, r) // it compresses itself
			return
		}
		answers.ServeHTTP(w, r)
	})
}

func (a *API) routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /operations", a.answer(a.list))
	mux.HandleFunc("GET /operations/{id}", a.answer(a.get))
	mux.HandleFunc("GET /operations/{id}/history", a.answer(a.history))
	mux.HandleFunc("GET /operations/{id}/tries/{line}", a.answer(a.try))
	a.actionRoute(mux, "POST /operations/{id}/cancel", "cancel", a.cancel)
	a.actionRoute(mux, "POST /operations/{id}/retry", "retry", a.retry)
	a.actionRoute(mux, "POST /operations/{id}/skip", "skip", a.skip)
	a.actionRoute(mux, "POST /facts/replay", "replay_facts", a.replayFacts)
	mux.HandleFunc("GET /holds", a.answer(a.listHolds))
	a.actionRoute(mux, "POST /holds", "create_hold", a.createHold)
	a.actionRoute(mux, "DELETE /holds/{id}", "release_hold", a.releaseHold)
	mux.HandleFunc("POST /events/{key}", a.answer(a.receiveEvent))
	mux.HandleFunc("GET /limits", a.answer(a.getLimits))
	a.actionRoute(mux, "PUT /limits", "apply_limits", a.applyLimits)
	mux.HandleFunc("GET /instances/{id}", a.answer(a.instance))
	mux.HandleFunc("GET /instances/{id}/maintenance-window", a.answer(a.maintenanceWindow))
	mux.HandleFunc("GET /find", a.answer(a.findAny))
	mux.HandleFunc("GET /processes", a.answer(a.processes))
	mux.HandleFunc("GET /steps", a.answer(a.steps))
	mux.HandleFunc("GET /workers", a.answer(a.workers))
	a.actionRoute(mux, "POST /workers/{id}/ramps", "create_ramp", a.createRamp)
	a.actionRoute(mux, "DELETE /workers/{id}/ramps", "remove_ramps", a.removeRamps)
	mux.HandleFunc("GET /overview", a.answer(a.overview))
	mux.HandleFunc("GET /stuck", a.answer(a.stuck))
	mux.HandleFunc("GET /errors", a.answer(a.errors))
	mux.HandleFunc("GET /throughput", a.answer(a.throughput))
	mux.HandleFunc("GET "+StreamPath, a.stream)
	mux.HandleFunc("GET /me", a.answer(a.me))
	mux.HandleFunc("GET /actions", a.answer(a.listActions))
	a.overlayRoutes(mux)
	a.deadLetterRoutes(mux)
	a.batchRoutes(mux)
	a.webhookRoutes(mux)
	a.orchestrationRoutes(mux)
}

// parsePage parses the page of a list.
func parsePage(q url.Values) (limit, offset int, err error) {
	limit = defaultPageSize
	number := 1
	for _, n := range []struct {
		name   string
		target *int
		most   int
	}{{"page_size", &limit, maxPageSize}, {"page", &number, 1_000_000}} {
		v := q.Get(n.name)
		if v == "" {
			continue
		}
		i, err := strconv.Atoi(v)
		if err != nil || i < 1 || i > n.most {
			return 0, 0, fmt.Errorf("%s %q: must be a number from 1 to %d", n.name, v, n.most)
		}
		*n.target = i
	}
	return limit, (number - 1) * limit, nil
}

func (a *API) cancel(r *http.Request) (any, error) {
	return a.act(r, func(body *operator.ActionRequest) (engine.Event, error) {
		return engine.Cancel{Reason: "cancelled by " + body.By}, nil
	})
}

func (a *API) retry(r *http.Request) (any, error) {
	return a.act(r, func(body *operator.ActionRequest) (engine.Event, error) {
		if body.Step != "" && body.Stage == "" {
			return nil, errors.New("stage: is required with the step to retry from")
		}
		return engine.Retry{By: body.By, Stage: body.Stage, Step: body.Step}, nil
	})
}

func (a *API) skip(r *http.Request) (any, error) {
	return a.act(r, func(body *operator.ActionRequest) (engine.Event, error) {
		if body.Step == "" {
			return nil, errors.New("step: must name the current step of the operation")
		}
		return engine.SkipStep{Step: body.Step, By: body.By}, nil
	})
}

// act applies an action.
func (a *API) act(r *http.Request, decide func(body *operator.ActionRequest) (engine.Event, error)) (any, error) {
	var body operator.ActionRequest
	if err := decodeOptional(r, maxBody, `"by", "step", "stage" and "dryRun"`, &body); err != nil {
		return nil, err
	}
	body.By = by(r.Context(), body.By)
	note(r.Context(), func(a *store.Action) { a.Detail = detail(&body) })
	e, err := decide(&body)
	retry, isRetry := e.(engine.Retry)
	if err == nil && !isRetry && (body.Stage != "" || body.DryRun) {
		err = errors.New("stage, dryRun: are allowed only for a retry")
	}
	if err != nil {
		return nil, badRequest(err)
	}
	id, err := uuid.Parse(r.PathValue("id"))
	if err != nil {
		return nil, notFound(fmt.Errorf("there is no operation %q", r.PathValue("id")))
	}
	var preview []engine.Planned
	if body.DryRun {
		preview, err = a.deps.Actor.PreviewRetry(r.Context(), id.String(), retry)
	} else {
		err = a.deps.Actor.Act(r.Context(), id.String(), e)
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, a.missingOrArchived(r.Context(), id.String())
	case err != nil:
		return nil, err
	case body.DryRun:
		return a.preview(r.Context(), id.String(), retry, preview)
	}
	a.deps.Log.Info("operator action", "operation_id", id.String(), "action", fmt.Sprintf("%T", e), "by", body.By)
	return nil, nil
}

// preview returns what a retry would run, and what its first step would be sent.
func (a *API) preview(ctx context.Context, id string, e engine.Retry, steps []engine.Planned) (any, error) {
	answer := operator.RetryPreview{Steps: viewPlanned(steps)}
	rows, err := a.deps.Operations.Read(ctx, []string{id})
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		p, err := a.deps.Definitions.Pinned(ctx, row.Definition)
		if err != nil {
			return nil, err
		}
		if answer.LosesMemory, err = engine.LosesMemory(p, &row.State, e); err != nil {
			return nil, err
		}
		answer.Sent = sentNext(row, p, steps)
	}
	return answer, nil
}

// sentNext returns what the worker of the first of the steps that runs would be sent; nil if none runs.
func sentNext(r *store.Row, p *process.Process, steps []engine.Planned) *operator.Sent {
	for _, planned := range steps {
		i, j, _ := p.Find(planned.Step)
		if step := p.At(i, j); step != nil && planned.Plan != engine.PlanSkipped && !step.BuiltIn() {
			sent := sentTo(r, step, "")
			sent.Details, sent.DetailsRecorded = mask.JSON(r.Details), true
			return sent
		}
	}
	return nil
}

func viewPlanned(preview []engine.Planned) []operator.PlannedStep {
	steps := make([]operator.PlannedStep, len(preview))
	for i, p := range preview {
		steps[i] = operator.PlannedStep{Stage: p.Stage, Step: p.Step, Plan: string(p.Plan), Reason: p.Reason}
	}
	return steps
}

// detail returns what the record of an action has besides its operation.
func detail(body *operator.ActionRequest) string {
	switch {
	case body.DryRun && body.Stage == "":
		return "preview"
	case body.DryRun:
		return "preview from " + operator.RetryFrom(body.Stage, body.Step)
	case body.Stage != "":
		return "from " + operator.RetryFrom(body.Stage, body.Step)
	}
	return body.Step
}

// missingOrArchived returns why there can be no action on an operation that is archived or does not exist.
func (a *API) missingOrArchived(ctx context.Context, id string) error {
	found, err := a.deps.Operations.Read(ctx, []string{id})
	switch {
	case err != nil:
		return err
	case len(found) > 0:
		return fmt.Errorf("operation %s: %w: it is archived", id, engine.ErrNotPossible)
	}
	return notFound(fmt.Errorf("there is no operation %q", id))
}

func (a *API) processes(*http.Request) (any, error) {
	set := a.deps.Definitions.Set()
	out := []json.RawMessage{}
	for _, t := range event.OperationTypes() {
		if p := set[t]; p != nil {
			out = append(out, p.Canonical())
		}
	}
	return operator.All(out), nil
}

// Answer answers event.AskOperations. If not all operations fit into an answer, it lists the others in OperationsAnswer.Left.
func (a *API) Answer(ctx context.Context, data []byte) (any, error) {
	var request event.OperationsRequest
	if err := json.Unmarshal(data, &request); err != nil {
		return nil, fmt.Errorf("the request must be a JSON object with ids: %w", err)
	}
	if len(request.IDs) > maxAsked {
		return nil, fmt.Errorf("ids: got %d, want at most %d", len(request.IDs), maxAsked)
	}
	rows, err := a.deps.Operations.Read(ctx, request.IDs)
	if err != nil {
		a.deps.Log.Warn("question not answered", "err", err)
		return nil, errors.New("the operations cannot be read now")
	}
	known := make([]event.OperationStatus, 0, len(rows))
	for _, row := range rows {
		p, err := a.deps.Definitions.Pinned(ctx, row.Definition)
		if err != nil {
			return nil, errors.New("a process definition cannot be read now")
		}
		known = append(known, status(row, p))
	}
	n, err := bus.Page(known)
	if err != nil {
		a.deps.Log.Error("question not answered", "err", err)
		return nil, errors.New("the operations cannot be encoded")
	}
	answer := event.OperationsAnswer{Operations: known[:n]}
	for i := range known[n:] {
		answer.Left = append(answer.Left, known[n+i].OperationID)
	}
	return answer, nil
}

func (a *API) write(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		a.deps.Log.Debug("answer not written", "err", err)
	}
}

func (a *API) fail(w http.ResponseWriter, code int, err error) {
	a.write(w, code, operator.Error{Error: err.Error()})
}

// statusClientClosed is the status, in metrics, of a request whose client disconnected.
const statusClientClosed = 499

// internalError answers an internal error. The cause is logged, unless the client disconnected.
func (a *API) internalError(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(r.Context().Err(), context.Canceled) {
		a.deps.Log.Debug("the client disconnected", "err", err)
		w.WriteHeader(statusClientClosed)
		return
	}
	if errors.Is(err, store.ErrSlowFilter) {
		a.fail(w, http.StatusBadRequest, fmt.Errorf("filter: %w", store.ErrSlowFilter))
		return
	}
	a.deps.Log.Error("question failed", "err", err)
	a.fail(w, http.StatusInternalServerError, errors.New("the request failed; the log contains the reason"))
}
