package operatorapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/services/orchestrator/internal/batch"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/orchestration"
	"github.com/kyma-project/keb/services/orchestrator/internal/overlay"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
	"github.com/kyma-project/keb/services/orchestrator/internal/webhook"
)

// handler answers a request with a value, which is sent as JSON, or with nil for no content.
type handler func(r *http.Request) (any, error)

// accepted is an answer with the status 202.
type accepted struct{ body any }

// refusal is an error that the client gets, with a status.
type refusal struct {
	status int
	err    error
}

// Error returns the text for the client.
func (e *refusal) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *refusal) Unwrap() error { return e.err }

func badRequest(err error) error { return &refusal{http.StatusBadRequest, err} }

func notFound(err error) error { return &refusal{http.StatusNotFound, err} }

// missing returns err, in words for the client if it means that something does not exist.
func missing(err error, what, id string) error {
	if errors.Is(err, store.ErrNotFound) {
		return notFound(fmt.Errorf("there is no %s %.50q", what, id))
	}
	return err
}

// conflicts are the errors of requests that the current state does not allow.
var conflicts = []error{
	engine.ErrNotPossible, batch.ErrNotPossible, orchestration.ErrNotPossible, errTotal, store.ErrTooManyHolds, store.ErrTooManyRamps, store.ErrOtherRamp, bus.ErrNotRedrivable,
	overlay.ErrConflict, webhook.ErrTooMany, webhook.ErrNameTaken, webhook.ErrNoKeys,
}

// answer serves a handler.
func (a *API) answer(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := h(r)
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		switch v := v.(type) {
		case nil:
			w.WriteHeader(http.StatusNoContent)
		case accepted:
			a.write(w, http.StatusAccepted, v.body)
		default:
			a.write(w, http.StatusOK, v)
		}
	}
}

// refuse answers an error. The cause of an internal one is logged.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if e, ok := errors.AsType[*refusal](err); ok {
		a.fail(w, e.status, e)
		return
	}
	if slices.ContainsFunc(conflicts, func(conflict error) bool { return errors.Is(err, conflict) }) {
		a.fail(w, http.StatusConflict, err)
		return
	}
	a.internalError(w, r, err)
}

// decode reads the body of a request into body: one JSON object of at most size bytes without unknown members. The error names the allowed
// members.
func decode(r *http.Request, size int64, members string, body any) error {
	decoder := json.NewDecoder(http.MaxBytesReader(nil, r.Body, size))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(body); err != nil {
		return badRequest(fmt.Errorf("body: must be a JSON object with %s: %w", members, err))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return badRequest(errors.New("body: unexpected data after the JSON object"))
	}
	return nil
}

// decodeOptional is decode for a request that may have no body.
func decodeOptional(r *http.Request, size int64, members string, body any) error {
	if r.ContentLength == 0 {
		return nil
	}
	return decode(r, size, members, body)
}
