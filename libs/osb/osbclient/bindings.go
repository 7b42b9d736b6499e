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

// Bind is what a binding is asked for with. What is empty or nil stays away.
type Bind struct {
	ServiceID string `json:"service_id,omitempty"`
	PlanID    string `json:"plan_id,omitempty"`
	// Context, BindResource and Parameters are encoded as JSON.
	Context      any `json:"context,omitempty"`
	BindResource any `json:"bind_resource,omitempty"`
	Parameters   any `json:"parameters,omitempty"`
	// PredecessorBindingID names the binding that this one is to replace; a rotation needs nothing else.
	PredecessorBindingID string `json:"predecessor_binding_id,omitempty"`
}

// Binding is what a broker tells of a binding. Credentials and Endpoints are as the broker sent them.
type Binding struct {
	// Async tells that the binding is yet to be made: ask for Operation until it has ended, and then for the binding.
	Async     bool   `json:"-"`
	Operation string `json:"operation"`
	// Existed tells that exactly this binding was there before.
	Existed bool `json:"-"`
	// Credentials is a JSON object, and a secret.
	Credentials json.RawMessage `json:"credentials"`
	Parameters  json.RawMessage `json:"parameters"`
	Endpoints   []osb.Endpoint  `json:"endpoints"`
	Metadata    struct {
		// ExpiresAt and RenewBefore are zero when the broker does not say.
		ExpiresAt   time.Time `json:"expires_at,omitzero"`
		RenewBefore time.Time `json:"renew_before,omitzero"`
	} `json:"metadata"`
}

// String leaves the credentials out.
func (b Binding) String() string {
	return fmt.Sprintf("binding that expires at %s", b.Metadata.ExpiresAt.Format(time.RFC3339))
}

// Bind makes a binding of an instance. Errors of the broker are *osb.Error.
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

// GetBinding reads a binding. One that does not exist is an *osb.Error with status 404.
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

// LastBindingOperation asks where an operation on a binding stands; an empty operation means the newest.
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
