// Package answer decodes JSON requests and encodes JSON answers.
package answer

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
