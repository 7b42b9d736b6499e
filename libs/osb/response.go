package osb

import (
	"encoding/json"
	"time"
)

// ProvisionResult is Accepted, Created or Exists.
type ProvisionResult interface{ provisionResult() }

// UpdateResult is Accepted or Updated.
type UpdateResult interface{ updateResult() }

// DeprovisionResult is Accepted or Deprovisioned.
type DeprovisionResult interface{ deprovisionResult() }

// BindResult is Accepted or Bound.
type BindResult interface{ bindResult() }

// UnbindResult is Accepted or Unbound.
type UnbindResult interface{ unbindResult() }

// Accepted means that the work continues after the answer (202). A repeated request returns the same operation.
type Accepted struct {
	// Operation is the value with which the platform requests the last operation; at most 10,000 characters, no secret.
	Operation string
	// DashboardURL is optional. Answers about bindings and deprovisioning omit it.
	DashboardURL string
	// Metadata is optional, and omitted like DashboardURL.
	Metadata *Metadata
}

// Created means that the instance was created within the request (201).
type Created struct {
	DashboardURL string
	Metadata     *Metadata
}

// Exists means that exactly this instance already exists (200).
type Exists struct {
	DashboardURL string
	Metadata     *Metadata
}

// Updated means that the update is complete (200).
type Updated struct {
	DashboardURL string
	Metadata     *Metadata
}

// Deprovisioned means that the instance was removed within the request (200).
type Deprovisioned struct{}

// Bound is a binding that was created within the request (201), or that already existed (200).
type Bound struct {
	Binding Binding
	// Existed reports whether exactly this binding already existed.
	Existed bool
}

// Unbound means that the binding was removed within the request (200).
type Unbound struct{}

func (Accepted) provisionResult()        {}
func (Accepted) updateResult()           {}
func (Accepted) deprovisionResult()      {}
func (Accepted) bindResult()             {}
func (Accepted) unbindResult()           {}
func (Created) provisionResult()         {}
func (Exists) provisionResult()          {}
func (Updated) updateResult()            {}
func (Deprovisioned) deprovisionResult() {}
func (Bound) bindResult()                {}
func (Unbound) unbindResult()            {}

// Metadata describes an instance to the platform. It contains no secret.
type Metadata struct {
	Labels     map[string]string `json:"labels,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

// Instance is the platform's view of an instance. It contains no secret.
type Instance struct {
	ServiceID    string `json:"service_id,omitempty"`
	PlanID       string `json:"plan_id,omitempty"`
	DashboardURL string `json:"dashboard_url,omitempty"`
	// Parameters is a JSON object.
	Parameters      json.RawMessage  `json:"parameters,omitempty"`
	MaintenanceInfo *MaintenanceInfo `json:"maintenance_info,omitempty"`
	Metadata        *Metadata        `json:"metadata,omitempty"`
}

// State is the state of an operation, with the names of the API.
type State string

// The states.
const (
	StateInProgress State = "in progress"
	StateSucceeded  State = "succeeded"
	StateFailed     State = "failed"
)

// LastOperation is the state of an operation.
type LastOperation struct {
	State State `json:"state"`
	// Description is for the user of the platform, without internal names and secrets. It is optional.
	Description string `json:"description,omitempty"`
	// InstanceUsable is for failed updates and deprovisionings.
	InstanceUsable *bool `json:"instance_usable,omitempty"`
	// UpdateRepeatable is for failed updates.
	UpdateRepeatable *bool `json:"update_repeatable,omitempty"`
	// RetryAfter is the delay before the next poll while the operation is in progress, in seconds, rounded up. Zero omits it.
	RetryAfter time.Duration `json:"-"`
}

// Binding is a binding with its credentials.
type Binding struct {
	// Credentials is a JSON object.
	Credentials     json.RawMessage
	SyslogDrainURL  string
	RouteServiceURL string
	// VolumeMounts is a JSON array.
	VolumeMounts json.RawMessage
	Endpoints    []Endpoint
	// Parameters is a JSON object, for GetBinding only.
	Parameters json.RawMessage
	// ExpiresAt is when the credentials expire; RenewBefore is when they should be rotated, not after ExpiresAt. Zero omits
	// them.
	ExpiresAt   time.Time
	RenewBefore time.Time
}

// Endpoint is an address at which an application reaches the bound service.
type Endpoint struct {
	Host string `json:"host"`
	// Ports are single ports ("443") or ranges ("9000-9010").
	Ports []string `json:"ports"`
	// Protocol is "tcp", "udp" or "all"; empty means tcp.
	Protocol string `json:"protocol,omitempty"`
}
