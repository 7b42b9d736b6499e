package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// MaxBody is the maximum size of a request body in bytes, for systems without their own limit.
const MaxBody = 4 << 20

// ErrTooLarge means that a body exceeds the limit.
var ErrTooLarge = errors.New("request body too large")

// JSON writes v with that status.
func JSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	// The status is sent, so a write error cannot be reported to the client.
	_ = enc.Encode(v)
}

// Error writes {"error": message}.
func Error(w http.ResponseWriter, status int, format string, args ...any) {
	JSON(w, status, map[string]string{"error": fmt.Sprintf(format, args...)})
}

// StatusError is an error with a status, which Reply uses.
type StatusError struct {
	Status  int
	Message string
}

// Error returns the message.
func (e *StatusError) Error() string { return e.Message }

// Reply writes body with that status, or no body if it is nil. It writes an error like Error, with its status if it is a StatusError,
// otherwise with 500.
func Reply(w http.ResponseWriter, err error, status int, body any) {
	switch {
	case err != nil:
		status = http.StatusInternalServerError
		if e, ok := errors.AsType[*StatusError](err); ok {
			status = e.Status
		}
		Error(w, status, "%v", err)
	case body == nil:
		w.WriteHeader(status)
	default:
		JSON(w, status, body)
	}
}

// Body reads the whole body. It returns ErrTooLarge for more than limit bytes.
func Body(r *http.Request, limit int64) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	if int64(len(body)) > limit {
		return nil, ErrTooLarge
	}
	return body, nil
}

// Decode decodes a JSON body of at most limit bytes into v. More than one JSON value is an error.
func Decode(r *http.Request, limit int64, v any) error {
	body, err := Body(r, limit)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("decode body: %w", err)
	}
	return nil
}

// Bearer returns the request's bearer token, or "".
func Bearer(r *http.Request) string {
	scheme, value, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(value)
}

// BaseURL returns the scheme and the host of the request.
func BaseURL(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}
