package kubernetes

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/kyma-project/keb/landscape/internal/contract"
)

// apiError is answered as a Status object, which is the error format of Kubernetes clients.
type apiError struct {
	code    int
	reason  string
	message string
	details map[string]any
	// breach describes the violation of the contract, without values. It is empty if a correct client can get this error.
	breach string
}

func (e *apiError) Error() string { return e.message }

func failure(code int, reason, format string, args ...any) *apiError {
	return &apiError{code: code, reason: reason, message: fmt.Sprintf(format, args...)}
}

// breaks returns an error that no correct client gets.
func breaks(code int, reason, format string, args ...any) *apiError {
	e := failure(code, reason, format, args...)
	e.breach = e.message
	return e
}

func badRequest(format string, args ...any) *apiError {
	return breaks(http.StatusBadRequest, "BadRequest", format, args...)
}

// about returns an error about one object of a collection.
func (c *collection) about(code int, reason, name, problem string) *apiError {
	qualified := c.Plural
	if c.Group != "" {
		qualified += "." + c.Group
	}
	e := failure(code, reason, "%s %q %s", qualified, name, problem)
	e.details = map[string]any{"name": name, "group": c.Group, "kind": c.Plural}
	return e
}

func (c *collection) notFound(name string) *apiError {
	return c.about(http.StatusNotFound, "NotFound", name, "not found")
}

func (c *collection) conflict(name string) *apiError {
	return c.about(http.StatusConflict, "Conflict", name,
		"cannot be changed: the object has been modified; apply your changes to the latest version and try again")
}

// writeError answers with an error, and records a violation of the contract.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	e, ok := errors.AsType[*apiError](err)
	if !ok {
		e = failure(http.StatusInternalServerError, "InternalError", "%v", err)
	}
	if e.breach != "" {
		contract.Violation(r, "%s", e.breach)
	}
	status := map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{},
		"status": "Failure", "message": e.message, "reason": e.reason, "code": e.code,
	}
	if e.details != nil {
		status["details"] = e.details
	}
	contract.JSON(w, e.code, status)
}

func writeSuccess(w http.ResponseWriter) {
	contract.JSON(w, http.StatusOK, map[string]any{"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Success"})
}
