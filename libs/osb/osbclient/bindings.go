package osbclient

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/kyma-project/keb/libs/osb"
)

// Bind is an order for a binding.
type Bind struct {
	ServiceID string `json:"service_id,omitempty"`
	PlanID    string `json:"plan_id,omitempty"`
	// Context is an object that describes the platform.
	Context any `json:"context,omitempty"`
	// BindResource is an object that names the application.
	BindResource any `json:"bind_resource,omitempty"`
	// Parameters is an object that matches the schema of the plan in the catalog.
	Parameters any `json:"parameters,omitempty"`
	// PredecessorBindingID is the binding that a rotation replaces. A rotation needs no other member.
	PredecessorBindingID string `json:"predecessor_binding_id,omitempty"`
}

// Binding is the broker's description of a binding. Credentials and Endpoints are unchanged.
type Binding struct {
	// Async reports whether the binding is created asynchronously: poll for Operation, then get the binding.
	Async     bool   `json:"-"`
	Operation string `json:"operation"`
	// Existed reports whether exactly this binding already existed.
	Existed bool `json:"-"`
	// Credentials is a JSON object, and a secret.
	Credentials json.RawMessage `json:"credentials"`
	Parameters  json.RawMessage `json:"parameters"`
	Endpoints   []osb.Endpoint  `json:"endpoints"`
	Metadata    struct {
		// ExpiresAt and RenewBefore are zero if the broker does not send them.
		ExpiresAt   time.Time `json:"expires_at,omitzero"`
		RenewBefore time.Time `json:"renew_before,omitzero"`
	} `json:"metadata"`
}

// String omits the credentials.
func (b Binding) String() string {
	return fmt.Sprintf("binding that expires at %s", b.Metadata.ExpiresAt.Format(time.RFC3339))
}

// Bind creates a binding of an instance. Errors of the broker are *osb.Error.
func (c *Client) Bind(ctx context.Context, instanceID, bindingID string, b Bind) (*Binding, error) {
	var out Binding
	query := url.Values{"accepts_incomplete": {"true"}}
	response, err := c.call(ctx, http.MethodPut, bindingPath(instanceID, bindingID), query, b, &out)
	if err != nil {
		return nil, fmt.Errorf("bind: %w", err)
	}
	out.Async, out.Existed = response.StatusCode == http.StatusAccepted, response.StatusCode == http.StatusOK
	return &out, nil
}

// GetBinding returns a binding. If it does not exist, the error is an *osb.Error with status 404.
func (c *Client) GetBinding(ctx context.Context, instanceID, bindingID string) (*Binding, error) {
	var out Binding
	if _, err := c.call(ctx, http.MethodGet, bindingPath(instanceID, bindingID), nil, nil, &out); err != nil {
		return nil, fmt.Errorf("get binding: %w", err)
	}
	out.Existed = true
	return &out, nil
}

// Unbind removes a binding. One that does not exist is an error for which IsGone is true.
func (c *Client) Unbind(ctx context.Context, instanceID, bindingID, serviceID, planID string) (*Answer, error) {
	query := url.Values{"service_id": {serviceID}, "plan_id": {planID}}
	return c.change(ctx, "unbind", http.MethodDelete, bindingPath(instanceID, bindingID), query, nil)
}

// LastBindingOperation returns the state of an operation on a binding; an empty operation means the newest.
func (c *Client) LastBindingOperation(ctx context.Context, instanceID, bindingID, operation string) (*osb.LastOperation, error) {
	query := url.Values{}
	if operation != "" {
		query.Set("operation", operation)
	}
	var out osb.LastOperation
	response, err := c.call(ctx, http.MethodGet, bindingPath(instanceID, bindingID)+"/last_operation", query, nil, &out)
	if err != nil {
		return nil, fmt.Errorf("last binding operation: %w", err)
	}
	out.RetryAfter = retryAfter(response)
	return &out, nil
}

func bindingPath(instanceID, bindingID string) string {
	return instancePath(instanceID) + "/service_bindings/" + url.PathEscape(bindingID)
}
