package operatorapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/orchestration"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// maxOrder limits the body of a request for an orchestration or a retry.
const maxOrder = 1 << 20

// Orchestrations stores orchestrations.
type Orchestrations interface {
	Create(ctx context.Context, o *orchestration.Orchestration) error
	List(ctx context.Context, f store.OrchestrationFilter) ([]*orchestration.Orchestration, int, error)
	Get(ctx context.Context, id string) (*orchestration.Orchestration, error)
	// Tallies counts the members of orchestrations, by ID.
	Tallies(ctx context.Context, ids []string) (map[string]orchestration.Tally, error)
	Failures(ctx context.Context, id string) ([]orchestration.Failure, error)
	Members(ctx context.Context, id string, f store.MemberFilter) ([]*orchestration.Member, int, error)
	Member(ctx context.Context, id, operationID string) (*orchestration.Member, error)
	Cancel(ctx context.Context, id string, now time.Time) error
	Pause(ctx context.Context, id, name string, now time.Time) (*orchestration.Orchestration, error)
	Resume(ctx context.Context, id, name string, now time.Time) (*orchestration.Orchestration, error)
	Approve(ctx context.Context, id, name string, now time.Time) (*orchestration.Orchestration, error)
	Retry(ctx context.Context, id string, operations []string, immediate bool, now time.Time) (orchestration.Retries, error)
	Events(ctx context.Context, operationIDs, instanceIDs []string, limit int) ([]store.Event, error)
}

func viewOrchestration(o *orchestration.Orchestration, t orchestration.Tally, now time.Time) operator.Orchestration {
	v := operator.Orchestration{
		OrchestrationID: o.ID, Type: o.Type, State: operator.OrchestrationState(stateOf(o.State)), CreatedAt: o.CreatedAt, UpdatedAt: o.UpdatedAt,
		Parameters: o.Parameters, StartedAt: optional(o.StartedAt), Progress: o.Progress(t, now),
	}
	v.Description = o.Explanation(&v.Progress)
	if o.Pause != nil {
		v.Pause = &operator.Pause{Reason: o.Pause.Reason, By: o.Pause.By, Since: o.Pause.At}
	}
	return v
}

// stateOf converts a state to its form in the API.
func stateOf(s orchestration.State) operator.MemberState { return operator.MemberState(s) }

func viewMember(m *orchestration.Member, dryRun bool) operator.Member {
	return operator.Member{
		OperationID: m.OperationID, InstanceID: m.InstanceID, RuntimeID: m.RuntimeID, GlobalAccountID: m.GlobalAccountID,
		SubAccountID: m.SubaccountID, OrchestrationID: m.OrchestrationID, ServicePlanID: m.Plan.ID, ServicePlanName: m.Plan.Name,
		DryRun: dryRun, ShootName: m.ShootName, MaintenanceWindowBegin: optional(m.WindowBegin),
		MaintenanceWindowEnd: optional(m.WindowEnd), State: stateOf(m.State), Description: m.Description, RetriedAs: m.RetriedAs,
		Canary: m.Canary,
	}
}

func (a *API) orchestrationRoutes(mux *http.ServeMux) {
	a.actionRoute(mux, "POST /upgrade/kyma", "upgrade_kyma", a.upgrade(event.UpgradeKyma))
	a.actionRoute(mux, "POST /upgrade/cluster", "upgrade_cluster", a.upgrade(event.UpgradeCluster))
	mux.HandleFunc("GET /orchestrations", a.answer(a.listOrchestrations))
	mux.HandleFunc("GET /orchestrations/{id}", a.answer(a.getOrchestration))
	mux.HandleFunc("GET /orchestrations/{id}/operations", a.answer(a.listMembers))
	mux.HandleFunc("GET /orchestrations/{id}/operations/{operation}", a.answer(a.getMember))
	a.actionRoute(mux, "PUT /orchestrations/{id}/cancel", "cancel_orchestration", a.cancelOrchestration)
	a.actionRoute(mux, "PUT /orchestrations/{id}/pause", "pause_orchestration", a.changeOrchestration(pause))
	a.actionRoute(mux, "PUT /orchestrations/{id}/resume", "resume_orchestration", a.changeOrchestration(resume))
	a.actionRoute(mux, "PUT /orchestrations/{id}/approve", "approve_orchestration", a.changeOrchestration(approve))
	a.actionRoute(mux, "POST /orchestrations/{id}/retry", "retry_orchestration", a.retryOrchestration)
	mux.HandleFunc("GET /events", a.events)
}

// upgrade creates an orchestration. Its members are determined after the answer.
func (a *API) upgrade(t event.OperationType) handler {
	return func(r *http.Request) (any, error) {
		body, err := readBody(r)
		if err != nil {
			return nil, err
		}
		parameters, err := orchestration.ParseParameters(t, body)
		if err != nil {
			return nil, badRequest(err)
		}
		if err := a.checkPlans(r.Context(), parameters.Targets); err != nil {
			return nil, badRequest(err)
		}
		o := orchestration.New(t, parameters, a.deps.Now().UTC())
		if err := a.deps.Orchestrations.Create(r.Context(), o); err != nil {
			return nil, err
		}
		note(r.Context(), func(a *store.Action) { a.Target = o.ID })
		a.deps.Log.Info("orchestration created", "orchestration_id", o.ID, "type", string(t), "by", caller(r.Context()).Name)
		a.deps.Wake()
		return accepted{operator.OrchestrationID{OrchestrationID: o.ID}}, nil
	}
}

// plansTimeout limits the wait for the names of the plans.
const plansTimeout = 2 * time.Second

// checkPlans rejects targets that name an unknown plan. If the broker does not answer, the targets are accepted, because an orchestration
// waits for the broker anyway.
func (a *API) checkPlans(ctx context.Context, targets orchestration.Targets) error {
	if !orchestration.NamesPlan(targets) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, plansTimeout)
	defer cancel()
	known, err := a.deps.Plans(ctx)
	if err != nil || len(known) == 0 {
		a.deps.Log.Warn("plans of targets not checked", "err", err)
		return nil
	}
	return orchestration.CheckPlans(targets, known)
}

// readBody reads a body of limited size.
func readBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxOrder))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, &refusal{http.StatusRequestEntityTooLarge, fmt.Errorf("body: larger than %d bytes", maxOrder)}
	}
	if err != nil {
		return nil, badRequest(fmt.Errorf("body: %w", err))
	}
	return body, nil
}

func (a *API) listOrchestrations(r *http.Request) (any, error) {
	var f store.OrchestrationFilter
	var err error
	if f.State, f.Limit, f.Offset, err = parseList(r.URL.Query(), orchestration.States()); err != nil {
		return nil, badRequest(err)
	}
	list, total, err := a.deps.Orchestrations.List(r.Context(), f)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(list))
	for i, o := range list {
		ids[i] = o.ID
	}
	tallies, err := a.deps.Orchestrations.Tallies(r.Context(), ids)
	if err != nil {
		return nil, err
	}
	return listOf(list, total, func(o *orchestration.Orchestration) operator.Orchestration {
		return viewOrchestration(o, tallies[o.ID], a.deps.Now().UTC())
	}), nil
}

// listOf returns a page of a list.
func listOf[T, V any](rows []T, total int, view func(T) V) operator.List[V] {
	out := operator.List[V]{Data: make([]V, len(rows)), Count: len(rows), TotalCount: total}
	for i, row := range rows {
		out.Data[i] = view(row)
	}
	return out
}

// parseList parses the page and the state of a list.
func parseList[T ~string](q url.Values, allowed []T) (state T, limit, offset int, err error) {
	if state, err = parseState(q, allowed); err != nil {
		return "", 0, 0, err
	}
	limit, offset, err = parsePage(q)
	return state, limit, offset, err
}

func parseState[T ~string](q url.Values, allowed []T) (T, error) {
	given := q.Get("state")
	if given == "" {
		return "", nil
	}
	if state, ok := operator.Spelled(given, allowed); ok {
		return state, nil
	}
	names := make([]string, len(allowed))
	for i, s := range allowed {
		names[i] = string(s)
	}
	return "", fmt.Errorf("state %.50q: allowed are %s", given, strings.Join(names, ", "))
}

// loadOrchestration reads the orchestration of a request.
func (a *API) loadOrchestration(r *http.Request) (*orchestration.Orchestration, error) {
	o, err := a.deps.Orchestrations.Get(r.Context(), r.PathValue("id"))
	return o, missing(err, "orchestration", r.PathValue("id"))
}

func (a *API) getOrchestration(r *http.Request) (any, error) {
	o, err := a.loadOrchestration(r)
	if err != nil {
		return nil, err
	}
	return a.withTally(r.Context(), o)
}

// withTally returns an orchestration with the numbers and errors of its operations.
func (a *API) withTally(ctx context.Context, o *orchestration.Orchestration) (any, error) {
	tallies, err := a.deps.Orchestrations.Tallies(ctx, []string{o.ID})
	if err != nil {
		return nil, err
	}
	tally := tallies[o.ID]
	view := viewOrchestration(o, tally, a.deps.Now().UTC())
	if tally.Stats[orchestration.Failed] > 0 {
		failures, err := a.deps.Orchestrations.Failures(ctx, o.ID)
		if err != nil {
			return nil, err
		}
		view.Failures = groupFailures(failures)
	}
	view.OperationStats = make(operator.Stats, len(tally.Stats))
	for state, n := range tally.Stats {
		view.OperationStats[stateOf(state)] = n
	}
	return view, nil
}

// maxFailureGroups limits the groups of failures.
const maxFailureGroups = 20

// groupFailures groups failures whose messages differ only in identifiers and numbers, the most frequent first.
func groupFailures(failures []orchestration.Failure) []operator.FailureGroup {
	var groups []operator.FailureGroup
	index := map[string]int{}
	for _, f := range failures {
		text := store.ErrorPattern(f.Message, nil)
		i, known := index[text]
		if !known {
			i = len(groups)
			index[text] = i
			groups = append(groups, operator.FailureGroup{Error: text, Sample: f.Message, OperationID: f.OperationID})
		}
		groups[i].Count += f.Count
	}
	slices.SortStableFunc(groups, func(a, b operator.FailureGroup) int { return cmp.Compare(b.Count, a.Count) })
	return groups[:min(len(groups), maxFailureGroups)]
}

func (a *API) listMembers(r *http.Request) (any, error) {
	var f store.MemberFilter
	var err error
	if f.State, f.Limit, f.Offset, err = parseList(r.URL.Query(), orchestration.MemberStates()); err != nil {
		return nil, badRequest(err)
	}
	o, err := a.loadOrchestration(r)
	if err != nil {
		return nil, err
	}
	list, total, err := a.deps.Orchestrations.Members(r.Context(), o.ID, f)
	if err != nil {
		return nil, err
	}
	return listOf(list, total, func(m *orchestration.Member) operator.Member { return viewMember(m, o.Parameters.DryRun) }), nil
}

func (a *API) getMember(r *http.Request) (any, error) {
	o, err := a.loadOrchestration(r)
	if err != nil {
		return nil, err
	}
	m, err := a.deps.Orchestrations.Member(r.Context(), o.ID, r.PathValue("operation"))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, notFound(fmt.Errorf("orchestration %s has no operation %.50q", o.ID, r.PathValue("operation")))
	case err != nil:
		return nil, err
	}
	view := viewMember(m, o.Parameters.DryRun)
	if o.Type == event.UpgradeKyma {
		view.KymaConfig = orNew(o.Parameters.Kyma)
	} else {
		view.ClusterConfig = orNew(o.Parameters.Kubernetes)
	}
	return view, nil
}

func orNew[T any](v *T) *T {
	if v == nil {
		return new(T)
	}
	return v
}

func (a *API) cancelOrchestration(r *http.Request) (any, error) {
	o, err := a.loadOrchestration(r)
	if err != nil {
		return nil, err
	}
	if err := a.deps.Orchestrations.Cancel(r.Context(), o.ID, a.deps.Now().UTC()); err != nil {
		return nil, err
	}
	a.deps.Log.Info("orchestration cancelled", "orchestration_id", o.ID, "by", caller(r.Context()).Name)
	a.deps.Wake()
	return operator.OrchestrationID{OrchestrationID: o.ID}, nil
}

// Changes of an orchestration.
const (
	pause   = "pause"
	resume  = "resume"
	approve = "approve"
)

func (a *API) changeOrchestration(change string) handler {
	return func(r *http.Request) (any, error) {
		f := map[string]func(ctx context.Context, id, name string, now time.Time) (*orchestration.Orchestration, error){
			pause: a.deps.Orchestrations.Pause, resume: a.deps.Orchestrations.Resume, approve: a.deps.Orchestrations.Approve,
		}[change]
		o, err := f(r.Context(), r.PathValue("id"), caller(r.Context()).Name, a.deps.Now().UTC())
		if err != nil {
			return nil, missing(err, "orchestration", r.PathValue("id"))
		}
		a.deps.Log.Info("orchestration changed", "orchestration_id", o.ID, "state", string(o.State), "description", o.Description, "by", caller(r.Context()).Name)
		a.deps.Wake()
		return a.withTally(r.Context(), o)
	}
}

func (a *API) retryOrchestration(r *http.Request) (any, error) {
	const form = "application/x-www-form-urlencoded"
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != form {
		return nil, &refusal{http.StatusUnsupportedMediaType, errors.New("Content-Type: must be " + form)}
	}
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	operations, immediate, err := parseRetry(body)
	if err != nil {
		return nil, badRequest(err)
	}
	o, err := a.loadOrchestration(r)
	if err != nil {
		return nil, err
	}
	retries, err := a.deps.Orchestrations.Retry(r.Context(), o.ID, operations, immediate, a.deps.Now().UTC())
	if err != nil {
		return nil, err
	}
	view := operator.RetryAnswer{
		OrchestrationID: o.ID, RetryShoots: make([]string, 0, len(retries.New)), Msg: "retry operations are queued for processing",
		OldOperations: append([]string{}, retries.Old...), InvalidOperations: append([]string{}, retries.Invalid...),
	}
	for _, m := range retries.New {
		view.RetryShoots = append(view.RetryShoots, m.ShootName)
	}
	switch {
	case len(retries.New) == 0:
		view.Msg = "there is no failed operation to retry"
	case retries.State == orchestration.Paused:
		view.Msg += " when the orchestration is resumed"
	}
	if len(retries.New) > 0 {
		a.deps.Log.Info("orchestration retried", "orchestration_id", o.ID, "operations", len(retries.New), "by", caller(r.Context()).Name)
		a.deps.Wake()
	}
	return accepted{view}, nil
}

// maxRetried limits the operations in one request. To retry more, a client names none.
const maxRetried = 5000

func parseRetry(body []byte) (operations []string, immediate bool, err error) {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, false, fmt.Errorf("body: is not a form: %w", err)
	}
	for name, values := range form {
		switch name {
		case "operation-id":
			if len(values) > maxRetried {
				return nil, false, fmt.Errorf("operation-id: got %d values, want at most %d", len(values), maxRetried)
			}
			operations = values
		case "immediate":
			if immediate, err = strconv.ParseBool(values[0]); err != nil || len(values) > 1 {
				return nil, false, fmt.Errorf("immediate: %.50q: must be true or false, once", strings.Join(values, ", "))
			}
		default:
			return nil, false, fmt.Errorf("body: unknown field %.50q; allowed are operation-id, immediate", name)
		}
	}
	return operations, immediate, nil
}
