package operatorapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// decode reads the body of a request into body: one JSON object of at most size bytes without unknown members. The error that a caller
// sees names the allowed members. If ok is false, the request has been answered.
func (a *API) decode(w http.ResponseWriter, r *http.Request, size int64, members string, body any) (ok bool) {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, size))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(body); err != nil {
		a.fail(w, http.StatusBadRequest, fmt.Errorf("body: must be a JSON object with %s: %w", members, err))
		return false
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		a.fail(w, http.StatusBadRequest, errors.New("body: unexpected data after the JSON object"))
		return false
	}
	return true
}
