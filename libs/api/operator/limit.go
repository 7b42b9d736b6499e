package operator

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// Limits is the document with the limits, and what it means.
type Limits struct {
	// Version grows by one with each change; 0 if no limits were applied yet.
	Version int64 `json:"version"`
	// Document is the document in YAML, as it was applied.
	Document  string     `json:"document"`
	AppliedBy string     `json:"appliedBy,omitempty"`
	AppliedAt *time.Time `json:"appliedAt,omitempty"`
	// Limits are in the order of the document. A command that several of them have no room for waits for the first of these.
	Limits []Limit `json:"limits"`
	// Weights are the shares of global accounts; an account without an entry has 1.
	Weights map[string]float64 `json:"weights,omitempty"`
}

// Limit bounds the commands or operations in its scope.
type Limit struct {
	Name string `json:"name"`
	// Scope has the allowed values of each member. All members must match. The empty scope contains everything.
	Scope map[string][]string `json:"scope"`
	// Each is the member for each value of which the limit applies separately; absent for one limit for the whole scope.
	Each string `json:"each,omitempty" jsonschema:"enum=globalAccount,enum=plan,enum=region,enum=type,enum=step,enum=worker,enum=system"`
	// Commands is the maximum number of commands in flight.
	Commands int `json:"commands,omitempty"`
	// Rate is the maximum number of commands that begin, for example 5/s or 300/m.
	Rate string `json:"rate,omitempty"`
	// Operations is the maximum number of operations in progress.
	Operations int `json:"operations,omitempty"`
	// Use is what the commands in its scope use, for each value of the member each; at most the 20 values with the longest queues.
	Use []LimitUse `json:"use,omitempty"`
	// OperationUse is what the operations in its scope use, in the same form. Waiting operations count in each limit that applies to them.
	OperationUse []LimitUse `json:"operationUse,omitempty"`
}

// LimitUse is the use of a limit of commands or operations.
type LimitUse struct {
	// Value is the value of the member each; absent for a limit without it.
	Value string `json:"value,omitempty"`
	// InUse is the number of commands in flight or operations in progress, and Waiting that of those that wait for room.
	InUse   int `json:"inUse"`
	Waiting int `json:"waiting"`
}

// LimitsRequest replaces the limits.
type LimitsRequest struct {
	// Document is the new document in YAML.
	Document string `json:"document"`
	// DryRun checks the document and returns the changes without applying them.
	DryRun bool `json:"dryRun,omitempty"`
	// By is the name of the caller. It is ignored if access control is on.
	By string `json:"by,omitempty"`
}

// LimitsAnswer is the answer to a LimitsRequest.
type LimitsAnswer struct {
	// Version is the version of the limits that apply.
	Version int64 `json:"version"`
	// Changes describes the differences to the previous document, one per line; empty if both mean the same.
	Changes []string `json:"changes"`
}

// Limits returns the limits, and the raw answer.
func (c *Client) Limits(ctx context.Context) (*Limits, json.RawMessage, error) {
	return read[Limits](ctx, c, "/limits", nil, "read limits")
}

// ApplyLimits replaces the limits, or previews it, and returns the changes with the raw answer.
func (c *Client) ApplyLimits(ctx context.Context, r LimitsRequest) (*LimitsAnswer, json.RawMessage, error) {
	return write[LimitsAnswer](ctx, c, http.MethodPut, "/limits", r, "apply limits")
}
