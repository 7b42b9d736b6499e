package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// RampRequest requests a ramp of a worker.
type RampRequest struct {
	// Version is the version of live ramped replicas of the worker.
	Version string `json:"version"`
	// Percent is the share of the operations in the scope that go to the version, 1 to 100.
	Percent int `json:"percent"`
	// Scope selects operations; empty means all. Step, worker and system are not allowed. With an operation, it also applies to one that has
	// started.
	Scope  HoldScope `json:"scope"`
	Reason string    `json:"reason"`
	// By is the name of the caller. It is ignored if access control is on.
	By string `json:"by,omitempty"`
}

// Ramp sends operations that start after it to a version of a worker. They keep the version until the ramps of the worker are removed.
type Ramp struct {
	ID      string `json:"id" jsonschema:"format=uuid"`
	Version string `json:"version"`
	// Percent is the share of the operations in the scope.
	Percent   int       `json:"percent"`
	Scope     HoldScope `json:"scope"`
	Reason    string    `json:"reason"`
	CreatedBy string    `json:"createdBy"`
	CreatedAt time.Time `json:"createdAt"`
}

// String returns for example "10 % to 2.0.0 (plan azure)".
func (r *Ramp) String() string {
	text := fmt.Sprintf("%d %% to %s", r.Percent, r.Version)
	if scope := r.Scope.String(); scope != "" {
		text += " (" + scope + ")"
	}
	return text
}

// CreateRamp creates a ramp of a worker, and returns it with the raw answer.
func (c *Client) CreateRamp(ctx context.Context, worker string, r RampRequest) (*Ramp, json.RawMessage, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, nil, err
	}
	var out Ramp
	raw, err := c.send(ctx, http.MethodPost, "/workers/"+url.PathEscape(worker)+"/ramps", "application/json", body, &out)
	if err != nil {
		return nil, nil, fmt.Errorf("create a ramp of worker %s: %w", worker, err)
	}
	return &out, raw, nil
}

// RemoveRamps removes the ramps of a worker. The error is ErrNotFound if it has none.
func (c *Client) RemoveRamps(ctx context.Context, worker string) error {
	if _, err := c.send(ctx, http.MethodDelete, "/workers/"+url.PathEscape(worker)+"/ramps", "", nil, nil); err != nil {
		return fmt.Errorf("remove the ramps of worker %s: %w", worker, err)
	}
	return nil
}
