package operator

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// HoldScope selects operations and their steps. All fields that are set must match, and at least one must be set. A scope with a step, a
// worker or a system does not keep an operation from starting; it holds the operation at that step.
type HoldScope struct {
	Operation     string `json:"operation,omitempty" jsonschema:"format=uuid"`
	Instance      string `json:"instance,omitempty"`
	GlobalAccount string `json:"globalAccount,omitempty"`
	// Plan is the name or the ID of a plan.
	Plan string `json:"plan,omitempty"`
	// Region is the region of the hyperscaler.
	Region string              `json:"region,omitempty"`
	Type   event.OperationType `json:"type,omitempty"`
	Step   string              `json:"step,omitempty"`
	Worker string              `json:"worker,omitempty"`
	// System is an external system. It selects the steps whose definition names it in systems, or without systems the steps of the worker of
	// that name.
	System string `json:"system,omitempty"`
}

// String returns the fields that are set, for example "plan azure, worker avs".
func (s HoldScope) String() string {
	var parts []string
	for _, f := range []struct{ name, value string }{
		{"operation", s.Operation},
		{"instance", s.Instance},
		{"global account", s.GlobalAccount},
		{"plan", s.Plan},
		{"region", s.Region},
		{"type", string(s.Type)},
		{"step", s.Step},
		{"worker", s.Worker},
		{"system", s.System},
	} {
		if f.value != "" {
			parts = append(parts, f.name+" "+f.value)
		}
	}
	return strings.Join(parts, ", ")
}

// Orders says what happens to new orders in the scope of a hold.
type Orders string

const (
	// OrdersWait accepts orders. Their operations are held.
	OrdersWait Orders = "wait"
	// OrdersReject makes the broker reject orders: provisionings, updates and bindings, but no deprovisionings.
	OrdersReject Orders = "reject"
)

// HoldRequest requests a hold.
type HoldRequest struct {
	Scope HoldScope `json:"scope"`
	// Reason is shown with every held operation.
	Reason string `json:"reason"`
	// Orders is what happens to new orders in the scope; absent means wait. A hold that rejects orders may have no other fields in its scope
	// than global account, plan, region and instance, and type provision or update. The platform gets the reason.
	Orders Orders `json:"orders,omitempty" jsonschema:"enum=wait,enum=reject"`
	// Until is when the hold ends by itself; absent for a hold that must be released.
	Until *time.Time `json:"until,omitempty"`
	// By is the name of the caller. It is ignored if access control is on.
	By string `json:"by,omitempty"`
}

// Hold pauses the operations in its scope: they do not start, and send no command. Commands in flight finish.
type Hold struct {
	ID        string     `json:"id" jsonschema:"format=uuid"`
	Scope     HoldScope  `json:"scope"`
	Reason    string     `json:"reason"`
	Orders    Orders     `json:"orders" jsonschema:"enum=wait,enum=reject"`
	CreatedBy string     `json:"createdBy"`
	CreatedAt time.Time  `json:"createdAt"`
	Until     *time.Time `json:"until,omitempty"`
	// Operations is the number of operations that it holds now. An operation in several scopes counts for one of them.
	Operations int `json:"operations"`
}

// Holds returns the holds, and the raw answer.
func (c *Client) Holds(ctx context.Context) (*List[Hold], json.RawMessage, error) {
	return read[List[Hold]](ctx, c, "/holds", nil, "list holds")
}

// CreateHold creates a hold, and returns it with the raw answer.
func (c *Client) CreateHold(ctx context.Context, h HoldRequest) (*Hold, json.RawMessage, error) {
	return write[Hold](ctx, c, http.MethodPost, "/holds", h, "create hold")
}

// ReleaseHold releases a hold. The error is ErrNotFound if there is no such hold.
func (c *Client) ReleaseHold(ctx context.Context, id string) error {
	return c.order(ctx, http.MethodDelete, "/holds/"+url.PathEscape(id), "release hold %s", id)
}
