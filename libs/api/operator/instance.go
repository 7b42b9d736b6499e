package operator

import (
	"context"
	"encoding/json"
	"net/url"

	"github.com/kyma-project/keb/libs/event"
)

// Instance is everything that is known of one instance.
type Instance struct {
	InstanceID string `json:"instanceId"`
	// Detail is what the broker knows. It is absent if the broker does not know the instance, or does not answer.
	Detail *event.InstanceDetail `json:"detail,omitempty"`
	// Operations are the newest operations, at most 50, and OperationCount is the number of all.
	Operations     []Operation `json:"operations"`
	OperationCount int         `json:"operationCount"`
	// Orchestrations are the newest operations of orchestrations, at most 50, also those that have not started.
	Orchestrations []Member `json:"orchestrations"`
	// Events are the newest lines of the histories of the operations, at most 50, oldest first.
	Events []Event `json:"events"`
	// Problems lists what could not be read, and why.
	Problems []string `json:"problems,omitempty"`
}

// MaintenanceWindow is the daily period in which the shoot of an instance may be disrupted.
type MaintenanceWindow struct {
	// ShootName is empty if the instance has no shoot.
	ShootName string `json:"shootName,omitempty"`
	// Begin and End are times of day with a zone, in the form "150405-0700". They are absent if the shoot has no window. A window that ends
	// before it begins spans midnight.
	Begin string `json:"begin,omitempty"`
	End   string `json:"end,omitempty"`
	// Problem is why the window is not known.
	Problem string `json:"problem,omitempty"`
}

// Found is what matches a text.
type Found struct {
	// Instances match with the beginning of the name of the runtime, the name of the shoot, or an ID.
	Instances []event.FoundInstance `json:"instances"`
	// MoreInstances reports whether more instances match.
	MoreInstances bool `json:"moreInstances,omitempty"`
	// Operations are the newest operations that match as in GET /operations, at most 20.
	Operations []Operation `json:"operations"`
	// OperationCount is the number of all operations that match; OperationCountCapped reports whether there are more.
	OperationCount       int  `json:"operationCount"`
	OperationCountCapped bool `json:"operationCountCapped,omitempty"`
	// Problems lists what could not be searched, and why.
	Problems []string `json:"problems,omitempty"`
}

// Instance returns everything that is known of an instance, and the raw answer. The error is ErrNotFound if there is no such instance.
func (c *Client) Instance(ctx context.Context, id string) (*Instance, json.RawMessage, error) {
	return read[Instance](ctx, c, "/instances/"+url.PathEscape(id), nil, "instance %s", id)
}

// MaintenanceWindow returns the maintenance window of an instance, or why it is not known.
func (c *Client) MaintenanceWindow(ctx context.Context, id string) (*MaintenanceWindow, error) {
	out, _, err := read[MaintenanceWindow](ctx, c, "/instances/"+url.PathEscape(id)+"/maintenance-window", nil, "maintenance window of instance %s", id)
	return out, err
}

// Find returns the instances and operations that match a text, and the raw answer.
func (c *Client) Find(ctx context.Context, text string) (*Found, json.RawMessage, error) {
	return read[Found](ctx, c, "/find", url.Values{"q": {text}}, "find %q", text)
}
