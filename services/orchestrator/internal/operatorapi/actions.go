package operatorapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// recordTimeout limits the time to record an action, also after its client disconnected.
const recordTimeout = 5 * time.Second

// Actions stores the audit records of operators' actions.
type Actions interface {
	Begin(ctx context.Context, a *store.Action) error
	End(ctx context.Context, a *store.Action) error
	List(ctx context.Context, f store.ActionFilter) ([]store.Action, int, error)
}

// caller returns the identity of the client. Without access control it is empty.
func caller(ctx context.Context) access.Identity {
	if i, ok := access.From(ctx); ok {
		return i
	}
	return access.Identity{Name: access.Anonymous, Role: access.Operator, Authentication: access.None}
}

type actionKey struct{}

// note lets a handler add details to the record of its action.
func note(ctx context.Context, f func(a *store.Action)) {
	if a, ok := ctx.Value(actionKey{}).(*store.Action); ok {
		f(a)
	}
}

// by returns the name to record with an action. An authenticated caller cannot claim another name.
func by(ctx context.Context, claimed string) string {
	i := caller(ctx)
	if i.Authentication != access.None || claimed == "" {
		return i.Name
	}
	note(ctx, func(a *store.Action) { a.Name = claimed })
	return claimed
}

// actionRoute adds a route that changes something. The request is recorded before its handler runs; if it cannot be recorded, the handler does not
// run.
func (a *API) actionRoute(mux *http.ServeMux, pattern, action string, h handler) {
	a.actions[pattern] = action
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		entry := a.action(caller(r.Context()), action, r.PathValue("id"))
		if err := a.begin(r, entry); err != nil {
			a.deps.Log.Error("action not recorded, and therefore not done", "action", action, "err", err)
			a.fail(w, http.StatusServiceUnavailable, errors.New("the action cannot be recorded now and was not done; try again"))
			return
		}
		answer := &recorded{header: http.Header{}}
		defer func() {
			// This runs also after a panic, which the server reports.
			a.end(r, entry, answer)
			answer.send(w)
		}()
		ctx, cancel := withoutCancel(r.Context())
		defer cancel()
		a.answer(h)(answer, r.WithContext(context.WithValue(ctx, actionKey{}, entry)))
		answer.returned = true
	})
}

// withoutCancel returns the context of an action. It does not end when the client disconnects.
func withoutCancel(request context.Context) (context.Context, context.CancelFunc) {
	ctx := context.WithoutCancel(request)
	if deadline, ok := request.Deadline(); ok {
		return context.WithDeadline(ctx, deadline)
	}
	return ctx, func() {}
}

func (a *API) action(i access.Identity, action, target string) *store.Action {
	return &store.Action{
		At: a.deps.Now().UTC(), Name: i.Name, Subject: i.Subject, Role: string(i.Role), Authentication: string(i.Authentication),
		Action: action, Target: target, Outcome: store.OutcomeBegun,
	}
}

func (a *API) begin(r *http.Request, entry *store.Action) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), recordTimeout)
	defer cancel()
	return a.deps.Actions.Begin(ctx, entry)
}

func (a *API) end(r *http.Request, entry *store.Action, answer *recorded) {
	switch {
	case !answer.returned || answer.status >= http.StatusInternalServerError:
		entry.Outcome = store.OutcomeFailed
	case answer.status >= http.StatusBadRequest:
		entry.Outcome = store.OutcomeRefused
	default:
		entry.Outcome = store.OutcomeDone
	}
	if entry.Outcome != store.OutcomeDone {
		var body operator.Error
		if json.Unmarshal(answer.body.Bytes(), &body) == nil {
			entry.Reason = body.Error
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), recordTimeout)
	defer cancel()
	if err := a.deps.Actions.End(ctx, entry); err != nil {
		a.deps.Log.Error("outcome of an action not recorded", "action_id", entry.ID, "outcome", string(entry.Outcome), "err", err)
	}
}

// Refused records that the caller's role does not allow an action. Rejected reads are not recorded.
func (a *API) Refused(r *http.Request, i access.Identity, reason string) {
	_, pattern := a.mux.Handler(r)
	action, ok := a.actions[pattern]
	if !ok {
		return
	}
	target := ""
	if strings.Contains(pattern, "{id}") {
		// All such routes begin with the kind of the target and its ID.
		target = strings.Split(r.URL.Path, "/")[2]
	}
	entry := a.action(i, action, target)
	entry.Outcome, entry.Reason = store.OutcomeRefused, reason
	if err := a.begin(r, entry); err != nil {
		a.deps.Log.Error("refused action not recorded", "action", action, "err", err)
	}
}

// recorded buffers an answer until the outcome of its action is recorded.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
	// returned reports whether the handler returned without a panic.
	returned bool
}

// Header returns the header of the answer.
func (r *recorded) Header() http.Header { return r.header }

// WriteHeader sets the status.
func (r *recorded) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

// Write adds to the body.
func (r *recorded) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(b)
}

func (r *recorded) send(w http.ResponseWriter) {
	if !r.returned {
		return
	}
	maps.Copy(w.Header(), r.header)
	w.WriteHeader(max(r.status, http.StatusOK))
	_, _ = w.Write(r.body.Bytes()) // the client may have disconnected
}

func (a *API) listActions(r *http.Request) (any, error) {
	f, err := parseActions(r)
	if err != nil {
		return nil, badRequest(err)
	}
	found, total, err := a.deps.Actions.List(r.Context(), f)
	if err != nil {
		return nil, err
	}
	return listOf(found, total, func(e store.Action) operator.Action {
		return operator.Action{
			ID: e.ID, Time: e.At, Name: e.Name, Subject: e.Subject, Role: e.Role, Authentication: e.Authentication, Action: e.Action,
			Target: e.Target, Detail: e.Detail, Outcome: string(e.Outcome), Reason: e.Reason,
		}
	}), nil
}

func parseActions(r *http.Request) (f store.ActionFilter, err error) {
	q := r.URL.Query()
	f = store.ActionFilter{
		Name: q.Get("name"), Action: q.Get("action"), Target: q.Get("target"), Outcome: store.Outcome(q.Get("outcome")),
	}
	outcomes := []store.Outcome{store.OutcomeBegun, store.OutcomeDone, store.OutcomeRefused, store.OutcomeFailed}
	if f.Outcome != "" && !slices.Contains(outcomes, f.Outcome) {
		return f, fmt.Errorf("outcome %.50q: allowed are %v", string(f.Outcome), outcomes)
	}
	f.Limit, f.Offset, err = parsePage(q)
	return f, err
}

// me returns the caller.
func (a *API) me(r *http.Request) (any, error) {
	return caller(r.Context()), nil
}
