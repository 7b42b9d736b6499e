package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Orchestration is a fleet upgrade as the operator API shows it. OperationStats counts its operations by state, and is there
// only when it was asked for by id.
type Orchestration struct {
	ID             string         `json:"orchestrationID"`
	Type           string         `json:"type"`
	State          string         `json:"state"`
	Description    string         `json:"description"`
	CreatedAt      time.Time      `json:"createdAt"`
	UpdatedAt      time.Time      `json:"updatedAt"`
	OperationStats map[string]int `json:"operationStats"`
}

// StateCanceled is the final state of an orchestration besides StateSucceeded and StateFailed.
const StateCanceled = "canceled"

// Final reports whether the orchestration has ended.
func (o *Orchestration) Final() bool {
	return o.State == StateSucceeded || o.State == StateFailed || o.State == StateCanceled
}

// statsOrder is the order in which an operation of an orchestration goes through its states.
var statsOrder = []string{"pending", "retrying", "in progress", "succeeded", "failed", "canceled", "skipped"}

// Stats lists how many operations are in which state.
func (o *Orchestration) Stats() string {
	var parts []string
	for _, state := range statsOrder {
		if n := o.OperationStats[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(parts, ", ")
}

// Progress is how many of its operations have ended, and how many there are.
func (o *Orchestration) Progress() (done, total int) {
	for state, n := range o.OperationStats {
		total += n
		switch state {
		case StateSucceeded, StateFailed, StateCanceled, "skipped":
			done += n
		}
	}
	return done, total
}

// Orchestrations is one page of orchestrations.
type Orchestrations struct {
	Data       []Orchestration `json:"data"`
	Count      int             `json:"count"`
	TotalCount int             `json:"totalCount"`
}

// Member is an operation of an orchestration.
type Member struct {
	OperationID            string     `json:"operationID"`
	InstanceID             string     `json:"instanceID"`
	RuntimeID              string     `json:"runtimeID"`
	GlobalAccountID        string     `json:"globalAccountID"`
	SubAccountID           string     `json:"subAccountID"`
	ServicePlanName        string     `json:"servicePlanName"`
	DryRun                 bool       `json:"dryRun"`
	ShootName              string     `json:"shootName"`
	MaintenanceWindowBegin *time.Time `json:"maintenanceWindowBegin"`
	MaintenanceWindowEnd   *time.Time `json:"maintenanceWindowEnd"`
	State                  string     `json:"state"`
	Description            string     `json:"description"`
	RetriedAs              string     `json:"retriedAs"`
	// KymaConfig and ClusterConfig are there only when the operation was asked for by id.
	KymaConfig    map[string]string `json:"kymaConfig"`
	ClusterConfig map[string]string `json:"clusterConfig"`
}

// Members is one page of the operations of an orchestration.
type Members struct {
	Data       []Member `json:"data"`
	Count      int      `json:"count"`
	TotalCount int      `json:"totalCount"`
}

// Target selects the instances that meet all of its conditions.
type Target struct {
	Target        string `json:"target,omitempty"`
	GlobalAccount string `json:"globalAccount,omitempty"`
	SubAccount    string `json:"subAccount,omitempty"`
	Region        string `json:"region,omitempty"`
	RuntimeID     string `json:"runtimeID,omitempty"`
	PlanName      string `json:"planName,omitempty"`
	Shoot         string `json:"shoot,omitempty"`
	InstanceID    string `json:"instanceID,omitempty"`
}

// Upgrade is an order for an orchestration.
type Upgrade struct {
	Targets struct {
		Include []Target `json:"include"`
		Exclude []Target `json:"exclude,omitempty"`
	} `json:"targets"`
	Strategy struct {
		Type              string `json:"type"`
		Schedule          string `json:"schedule"`
		MaintenanceWindow bool   `json:"maintenanceWindow"`
		Parallel          struct {
			Workers int `json:"workers"`
		} `json:"parallel"`
	} `json:"strategy"`
	DryRun       bool        `json:"dryRun"`
	Notification bool        `json:"notification"`
	Kyma         *Kyma       `json:"kyma,omitempty"`
	Kubernetes   *Kubernetes `json:"kubernetes,omitempty"`
}

// Kyma is the Kyma to upgrade to.
type Kyma struct {
	Version string `json:"version"`
}

// Kubernetes is the cluster to upgrade to; what is empty is as configured.
type Kubernetes struct {
	KubernetesVersion   string `json:"kubernetesVersion,omitempty"`
	MachineImage        string `json:"machineImage,omitempty"`
	MachineImageVersion string `json:"machineImageVersion,omitempty"`
}

// Retried says what became of a request to retry operations.
type Retried struct {
	OrchestrationID   string   `json:"orchestrationID"`
	RetryShoots       []string `json:"retryShoots"`
	OldOperations     []string `json:"oldOperations"`
	InvalidOperations []string `json:"invalidOperations"`
	Msg               string   `json:"msg"`
}

// Page selects a part of a list, and of it what is in a state; an empty state selects all. Page counts from 1.
type Page struct {
	State          string
	Page, PageSize int
}

func (p Page) query() url.Values {
	return Filter{State: p.State, Page: p.Page, PageSize: p.PageSize}.query()
}

// Upgrade orders an orchestration of "kyma" or "cluster", and returns its id and the answer as it came.
func (c *Client) Upgrade(ctx context.Context, what string, u *Upgrade) (string, json.RawMessage, error) {
	body, err := json.Marshal(u)
	if err != nil {
		return "", nil, fmt.Errorf("upgrade %s: %w", what, err)
	}
	var out Orchestration
	raw, err := c.send(ctx, http.MethodPost, "/upgrade/"+what, "application/json", body, &out)
	if err != nil {
		return "", nil, fmt.Errorf("upgrade %s: %w", what, err)
	}
	return out.ID, raw, nil
}

// Orchestrations lists orchestrations, and returns the answer as it came, too.
func (c *Client) Orchestrations(ctx context.Context, p Page) (*Orchestrations, json.RawMessage, error) {
	var out Orchestrations
	raw, err := c.get(ctx, "/orchestrations", p.query(), &out)
	if err != nil {
		return nil, nil, fmt.Errorf("list orchestrations: %w", err)
	}
	return &out, raw, nil
}

// Orchestration reads one orchestration, and returns the answer as it came, too. The error is ErrNotFound if there is none
// of this id.
func (c *Client) Orchestration(ctx context.Context, id string) (*Orchestration, json.RawMessage, error) {
	var out Orchestration
	raw, err := c.get(ctx, orchestrationPath(id, ""), nil, &out)
	if err != nil {
		return nil, nil, fmt.Errorf("orchestration %s: %w", id, err)
	}
	return &out, raw, nil
}

// Members lists the operations of an orchestration, and returns the answer as it came, too. The error is ErrNotFound if
// there is no such orchestration.
func (c *Client) Members(ctx context.Context, id string, p Page) (*Members, json.RawMessage, error) {
	var out Members
	raw, err := c.get(ctx, orchestrationPath(id, "/operations"), p.query(), &out)
	if err != nil {
		return nil, nil, fmt.Errorf("operations of orchestration %s: %w", id, err)
	}
	return &out, raw, nil
}

// Member reads one operation of an orchestration, and returns the answer as it came, too. The error is ErrNotFound if there
// is no such orchestration, or if it has no such operation.
func (c *Client) Member(ctx context.Context, id, operation string) (*Member, json.RawMessage, error) {
	var out Member
	raw, err := c.get(ctx, orchestrationPath(id, "/operations/"+url.PathEscape(operation)), nil, &out)
	if err != nil {
		return nil, nil, fmt.Errorf("operation %s of orchestration %s: %w", operation, id, err)
	}
	return &out, raw, nil
}

// CancelOrchestration cancels what waits, and returns the answer as it came. The error is ErrNotFound if there is no such
// orchestration.
func (c *Client) CancelOrchestration(ctx context.Context, id string) (json.RawMessage, error) {
	var out Orchestration
	raw, err := c.send(ctx, http.MethodPut, orchestrationPath(id, "/cancel"), "", nil, &out)
	if err != nil {
		return nil, fmt.Errorf("cancel orchestration %s: %w", id, err)
	}
	return raw, nil
}

// RetryOrchestration retries failed operations, all of them if none is named, and returns the answer as it came, too. The
// error is ErrNotFound if there is no such orchestration.
func (c *Client) RetryOrchestration(ctx context.Context, id string, operations []string, now bool) (*Retried, json.RawMessage, error) {
	form := url.Values{}
	if len(operations) > 0 {
		form["operation-id"] = operations
	}
	if now {
		form.Set("immediate", strconv.FormatBool(true))
	}
	var out Retried
	raw, err := c.send(ctx, http.MethodPost, orchestrationPath(id, "/retry"), "application/x-www-form-urlencoded", []byte(form.Encode()), &out)
	if err != nil {
		return nil, nil, fmt.Errorf("retry orchestration %s: %w", id, err)
	}
	return &out, raw, nil
}

func orchestrationPath(id, rest string) string { return "/orchestrations/" + url.PathEscape(id) + rest }
