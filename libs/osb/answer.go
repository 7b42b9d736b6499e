package osb

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
)

// answer is the response to the platform. A nil body sends none.
type answer struct {
	status int
	header map[string]string
	body   any
}

// encoded is a body that is already encoded as JSON.
type encoded []byte

// write sends the answer. An error means that the body cannot be encoded, and nothing was sent.
func (a answer) write(w http.ResponseWriter) error {
	body, isEncoded := a.body.(encoded)
	if a.body != nil && !isEncoded {
		var err error
		if body, err = encode(a.body); err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
	}
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	for name, value := range a.header {
		header.Set(name, value)
	}
	if a.body != nil {
		header.Set("Content-Type", "application/json")
		header.Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(a.status)
	if a.body != nil {
		// An error means that the platform has disconnected.
		_, _ = w.Write(body)
	}
	return nil
}

// encode does not escape <, > and &: they occur in URLs, and this JSON is not embedded in HTML.
func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func (e *Error) answer() answer {
	a := answer{status: e.Status, body: e.Body}
	if a.body == nil {
		description := e.Description
		if description == "" {
			description = http.StatusText(e.Status)
		}
		a.body = ErrorAnswer{
			Code: e.Code, Description: description, InstanceUsable: e.InstanceUsable, UpdateRepeatable: e.UpdateRepeatable,
		}
	}
	if e.RetryAfter > 0 {
		a.header = map[string]string{"Retry-After": seconds(e.RetryAfter)}
	}
	if allow := e.allow; allow != "" {
		a.header = map[string]string{"Allow": allow}
	}
	return a
}

// ErrorAnswer is the body of an error.
type ErrorAnswer struct {
	// Code is AsyncRequired, ConcurrencyError, MaintenanceInfoConflict or RequiresApp, or empty.
	Code string `json:"error,omitempty"`
	// Description is for people.
	Description string `json:"description"`
	// InstanceUsable reports whether the instance can be used after a failed update or deprovisioning.
	InstanceUsable *bool `json:"instance_usable,omitempty"`
	// UpdateRepeatable reports whether the same update can succeed later.
	UpdateRepeatable *bool `json:"update_repeatable,omitempty"`
}

// seconds rounds up, so that clients do not retry too early.
func seconds(d time.Duration) string { return strconv.Itoa(int(math.Ceil(d.Seconds()))) }

// InstanceAnswer is the body of an answer about an instance that is being created or changed.
type InstanceAnswer struct {
	DashboardURL string `json:"dashboard_url,omitempty"`
	// Operation is the value with which to poll the last operation. It is set if the operation is asynchronous.
	Operation string    `json:"operation,omitempty"`
	Metadata  *Metadata `json:"metadata,omitempty"`
}

// OperationAnswer is the body of an answer about something that is being removed.
type OperationAnswer struct {
	// Operation is the value with which to poll the last operation. It is set if the operation is asynchronous.
	Operation string `json:"operation,omitempty"`
}

// BindingAnswer is the body of an answer about a binding.
type BindingAnswer struct {
	Metadata *BindingMetadata `json:"metadata,omitempty"`
	// Credentials is a JSON object, and a secret.
	Credentials     json.RawMessage `json:"credentials,omitempty"`
	SyslogDrainURL  string          `json:"syslog_drain_url,omitempty"`
	RouteServiceURL string          `json:"route_service_url,omitempty"`
	// VolumeMounts is a JSON array.
	VolumeMounts json.RawMessage `json:"volume_mounts,omitempty"`
	Endpoints    []Endpoint      `json:"endpoints,omitempty"`
	// Parameters is a JSON object. Only an answer to a GET request has it.
	Parameters json.RawMessage `json:"parameters,omitempty"`
}

// BindingMetadata has the times of a binding, in UTC.
type BindingMetadata struct {
	// ExpiresAt is when the credentials expire.
	ExpiresAt string `json:"expires_at,omitempty" jsonschema:"format=date-time"`
	// RenewBefore is when they should be rotated.
	RenewBefore string `json:"renew_before,omitempty" jsonschema:"format=date-time"`
}

// bindingTime is the format of the specification: UTC with a fraction.
const bindingTime = "2006-01-02T15:04:05.0Z"

func (b *Binding) answer(parameters json.RawMessage) BindingAnswer {
	a := BindingAnswer{
		Credentials: b.Credentials, SyslogDrainURL: b.SyslogDrainURL, RouteServiceURL: b.RouteServiceURL,
		VolumeMounts: b.VolumeMounts, Endpoints: b.Endpoints, Parameters: parameters,
	}
	if b.ExpiresAt.IsZero() && b.RenewBefore.IsZero() {
		return a
	}
	a.Metadata = &BindingMetadata{}
	if !b.ExpiresAt.IsZero() {
		a.Metadata.ExpiresAt = b.ExpiresAt.UTC().Format(bindingTime)
	}
	if !b.RenewBefore.IsZero() {
		a.Metadata.RenewBefore = b.RenewBefore.UTC().Format(bindingTime)
	}
	return a
}
