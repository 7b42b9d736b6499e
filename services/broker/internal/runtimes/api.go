// Package runtimes serves the runtimes to operators, with GET /runtimes and GET /info/runtimes
// (docs/contracts/broker.md#list-of-runtimes), to other services, with event.AskInstances, and their kubeconfigs to customers. It also
// accepts requests to repeat an incomplete deprovisioning.
package runtimes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/api/broker"
	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/services/broker/internal/api"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Deps are the dependencies of the API. All are required.
type Deps struct {
	Store    *store.Store
	Requests *api.Broker
	Bus      *bus.Bus
	// Viewers authenticates clients that may read, Operators those that may act.
	Viewers, Operators osb.Authenticator
	// Origins are the origins whose pages may read kubeconfigs: "*", or a list, or none.
	Origins []string
	Log     *slog.Logger
}

// API serves the routes for operators.
type API struct{ deps Deps }

// New creates an API.
func New(deps Deps) *API { return &API{deps: deps} }

// Register adds the routes to a mux.
func (a *API) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /kubeconfig/{instance_id}", a.kubeconfig)
	mux.HandleFunc("GET /kubeconfig/{$}", a.kubeconfig)
	for path, r := range map[string]struct {
		method string
		handle http.HandlerFunc
	}{
		"/runtimes":      {http.MethodGet, a.list},
		"/info/runtimes": {http.MethodGet, a.info},
		"/runtimes/{instance_id}/deprovision-retrigger": {http.MethodPost, a.retrigger},
	} {
		auth := a.deps.Viewers
		if r.method != http.MethodGet {
			auth = a.deps.Operators
		}
		mux.Handle(r.method+" "+path, a.guarded(auth, r.handle))
		mux.Handle(path, a.guarded(a.deps.Viewers, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", r.method)
			a.fail(w, http.StatusMethodNotAllowed, fmt.Errorf("allowed is %s", r.method))
		}))
	}
}

type principalKey struct{}

// guarded authenticates the client, and converts a panic to an error response.
func (a *API) guarded(auth osb.Authenticator, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler:
				panic(p)
			default:
				// The value may contain a secret.
				a.deps.Log.Error("panic in a request", "panic", fmt.Sprintf("a value of type %T", p), "stack", string(debug.Stack()))
				a.fail(w, http.StatusInternalServerError, errInternal)
			}
		}()
		principal, err := auth.Authenticate(r)
		if refusal, ok := errors.AsType[*osb.Error](err); ok {
			if refusal.Status != http.StatusTooManyRequests { // a client can cause any number of them
				a.deps.Log.Warn("request refused", "status", refusal.Status, "err", err)
			}
			refusal.SetHeader(w.Header())
			a.fail(w, refusal.Status, errors.New(refusal.Description))
			return
		}
		if err != nil {
			if challenge := auth.Challenge(); challenge != "" {
				w.Header().Set("WWW-Authenticate", challenge)
			}
			a.fail(w, http.StatusUnauthorized, errors.New("valid credentials are required"))
			return
		}
		next(w, r.WithContext(context.WithValue(r.Context(), principalKey{}, principal)))
	})
}

var errInternal = errors.New("internal error")

func (a *API) list(w http.ResponseWriter, r *http.Request) {
	q, err := parse(r.URL.RawQuery)
	if err != nil {
		a.fail(w, http.StatusBadRequest, err)
		return
	}
	found, total, err := a.deps.Store.Runtimes(r.Context(), q.filter)
	if err != nil {
		a.broken(w, err)
		return
	}
	out := broker.RuntimeList{Data: make([]broker.Runtime, len(found)), Count: len(found), TotalCount: total}
	for i := range found {
		if out.Data[i], err = view(&found[i], q.kymaConfig, q.clusterConfig); err != nil {
			a.broken(w, err)
			return
		}
	}
	a.write(w, http.StatusOK, out)
}

func (a *API) retrigger(w http.ResponseWriter, r *http.Request) {
	dryRun, err := parseDryRun(r.URL.RawQuery)
	if err != nil {
		a.fail(w, http.StatusBadRequest, err)
		return
	}
	id := r.PathValue("instance_id")
	if err := checkText("instance_id", id); err != nil {
		a.fail(w, http.StatusBadRequest, err)
		return
	}
	principal, _ := r.Context().Value(principalKey{}).(osb.Principal)
	// The request remains valid if the client disconnects.
	ctx := context.WithoutCancel(r.Context())
	got, err := a.deps.Requests.Retrigger(ctx, osb.Call{ID: uuid.NewString(), Principal: principal, UserAgent: r.UserAgent()}, id, dryRun)
	if err != nil {
		a.broken(w, err)
		return
	}
	if !dryRun {
		a.write(w, http.StatusAccepted, broker.Retriggered{Operation: got.Operation})
		return
	}
	out := broker.Retriggered{DryRun: true, Action: "a new deprovisioning would be started", NotCompleted: got.NotCompleted}
	if got.Running {
		out.Action, out.Operation = "nothing: a deprovisioning is running", got.Operation
	}
	a.write(w, http.StatusOK, out)
}

func (a *API) fail(w http.ResponseWriter, status int, err error) {
	a.write(w, status, broker.Failure{Error: err.Error()})
}

// broken answers an error of the broker. The details are only in the log.
func (a *API) broken(w http.ResponseWriter, err error) {
	status, text := outcome(err)
	if status >= http.StatusInternalServerError {
		a.deps.Log.Error("request failed", "status", status, "err", err)
	}
	if refusal, ok := errors.AsType[*osb.Error](err); ok {
		refusal.SetHeader(w.Header())
	}
	a.fail(w, status, text)
}

func outcome(err error) (int, error) {
	if refusal, ok := errors.AsType[*osb.Error](err); ok {
		return refusal.Status, errors.New(refusal.Description)
	}
	if errors.Is(err, store.ErrUnavailable) {
		return http.StatusServiceUnavailable, errors.New("the database is not available, try again")
	}
	return http.StatusInternalServerError, errInternal
}

func (a *API) write(w http.ResponseWriter, status int, body any) {
	raw, err := json.Marshal(body)
	if err != nil {
		a.deps.Log.Error("answer not encoded", "err", err)
		status, raw = http.StatusInternalServerError, []byte(`{"error":"internal error"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(raw) // a disconnected client is not an error
}
