// Package answer reads JSON requests and writes JSON answers.
package answer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// MaxBody bounds a request body, in bytes, where the real system names no limit of its own.
const MaxBody = 4 << 20

// ErrTooLarge is a body over the limit.
var ErrTooLarge = errors.New("request body too large")

// JSON writes v with that status.
func JSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	// The status is out; a client that went away cannot be told more.
	_ = enc.Encode(v)
}

// Error writes {"error": message}.
func Error(w http.ResponseWriter, status int, format string, args ...any) {
	JSON(w, status, map[string]string{"error": fmt.Sprintf(format, args...)})
}

// Body reads the whole body; over limit bytes is ErrTooLarge.
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

// Decode reads a JSON body of at most limit bytes into v; more than one JSON value is an error.
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

// Bearer is the request's bearer token, "" without one.
func Bearer(r *http.Request) string {
	scheme, value, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(value)
}

// BaseURL is scheme and host under which the client reached us.
func BaseURL(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}
