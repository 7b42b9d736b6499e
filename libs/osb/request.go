package osb

import "encoding/json"

// Call holds the common data of all requests.
type Call struct {
	// ID is generated for each request. Every log line of the handler about it contains the ID.
	ID string
	// RequestIdentity is the X-Broker-API-Request-Identity header; empty if missing. The handler has already set it in the response.
	RequestIdentity string
	// Region is the platform region in the path, for example "cf-eu10"; empty if the path has none.
	Region string
	// Principal is the authenticated client.
	Principal Principal
	// OriginatingIdentity is the platform's user on whose behalf it calls; nil if the platform does not send it.
	OriginatingIdentity *OriginatingIdentity
	// Version is the version in X-Broker-API-Version. Its major number is 2.
	Version Version
	// UserAgent is the User-Agent header.
	UserAgent string
}

// OriginatingIdentity is the decoded X-Broker-API-Originating-Identity header.
type OriginatingIdentity struct {
	// Platform is the kind of platform, for example "cloudfoundry" or "kubernetes".
	Platform string
	// Value is a JSON object whose members depend on the platform, for example {"user_id":"..."}.
	Value json.RawMessage
}

// MaintenanceInfo is the version of the software of a plan or an instance.
type MaintenanceInfo struct {
	// Version is a semantic version 2.0.
	Version string `json:"version"`
	// Description is for people. It is optional.
	Description string `json:"description,omitempty"`
}

// Hints are the optional service_id and plan_id of requests that do not need them; each may be empty. Those that are set are in the
// catalog.
type Hints struct {
	ServiceID string
	PlanID    string
}

// ProvisionRequest orders an instance.
type ProvisionRequest struct {
	Call
	// InstanceID is chosen by the platform: not empty, valid UTF-8, no control characters, at most MaxIDLength bytes.
	InstanceID string
	// AcceptsIncomplete reports whether the platform supports an asynchronous operation. Without it, a broker that cannot complete the
	// request synchronously returns AsyncRequired.
	AcceptsIncomplete bool

	ServiceID string
	PlanID    string
	// Service and Plan are the catalog's entries for the ids. Never nil.
	Service *Service
	Plan    *Plan

	// OrganizationGUID and SpaceGUID may be empty unless WithRequireOrgSpace is on.
	OrganizationGUID string
	SpaceGUID        string
	// Context and Parameters are JSON objects, or nil if absent or null. Parameters are not validated against the plan's schema.
	Context    json.RawMessage
	Parameters json.RawMessage
	// MaintenanceInfo is nil if absent; otherwise its version is that of the plan.
	MaintenanceInfo *MaintenanceInfo
	// Body is the unchanged body.
	Body json.RawMessage
}

// GetInstanceRequest reads an instance.
type GetInstanceRequest struct {
	Call
	InstanceID string
	Hints
}

// UpdateRequest changes an instance.
type UpdateRequest struct {
	Call
	InstanceID string
	// AcceptsIncomplete has the meaning of ProvisionRequest.AcceptsIncomplete.
	AcceptsIncomplete bool

	ServiceID string
	// PlanID is empty if the plan does not change.
	PlanID string
	// Service is never nil. Plan is nil if PlanID is empty.
	Service *Service
	Plan    *Plan

	// Context and Parameters are JSON objects, or nil if absent or null. Only the members that are present change.
	Context    json.RawMessage
	Parameters json.RawMessage
	// MaintenanceInfo is nil if absent. Its version is compared with that of the plan only if PlanID is set; otherwise the broker must compare
	// it, see Plan.CheckMaintenanceInfo.
	MaintenanceInfo *MaintenanceInfo
	// PreviousValues is the platform's view of the instance; nil if absent. Brokers ignore it.
	PreviousValues json.RawMessage
	Body           json.RawMessage
}

// DeprovisionRequest removes an instance.
type DeprovisionRequest struct {
	Call
	InstanceID string
	// AcceptsIncomplete has the meaning of ProvisionRequest.AcceptsIncomplete.
	AcceptsIncomplete bool
	// ServiceID and PlanID are in the catalog, but may differ from those of the instance.
	ServiceID string
	PlanID    string
}

// LastOperationRequest requests the state of an operation on an instance.
type LastOperationRequest struct {
	Call
	InstanceID string
	// Operation is a value that the broker returned; empty means the newest operation of the instance.
	Operation string
	Hints
}

// BindRequest creates a binding.
type BindRequest struct {
	Call
	InstanceID string
	// BindingID is chosen by the platform. The rules for instance ids apply.
	BindingID string
	// AcceptsIncomplete has the meaning of ProvisionRequest.AcceptsIncomplete.
	AcceptsIncomplete bool

	// ServiceID and PlanID are empty only if PredecessorBindingID is set; then Service and Plan may be nil.
	ServiceID string
	PlanID    string
	// Service and Plan are the catalog's entries. The plan is bindable.
	Service *Service
	Plan    *Plan

	// AppGUID is from bind_resource, or else from the deprecated member of the body.
	AppGUID string
	// BindResource, Context and Parameters are JSON objects, or nil if absent or null.
	BindResource json.RawMessage
	Context      json.RawMessage
	Parameters   json.RawMessage
	// PredecessorBindingID is the binding that a rotation replaces; empty for other requests. If the plan is known, it is
	// binding_rotatable.
	PredecessorBindingID string
	Body                 json.RawMessage
}

// GetBindingRequest reads a binding.
type GetBindingRequest struct {
	Call
	InstanceID string
	BindingID  string
	Hints
}

// UnbindRequest removes a binding.
type UnbindRequest struct {
	Call
	InstanceID string
	BindingID  string
	// AcceptsIncomplete has the meaning of ProvisionRequest.AcceptsIncomplete.
	AcceptsIncomplete bool
	// ServiceID and PlanID are in the catalog, but may differ from those of the instance.
	ServiceID string
	PlanID    string
}

// LastBindingOperationRequest requests the state of an operation on a binding.
type LastBindingOperationRequest struct {
	Call
	InstanceID string
	BindingID  string
	// Operation is a value that the broker returned; empty means the newest operation of the binding.
	Operation string
	Hints
}
