package osb

import "encoding/json"

// Call is what every request carries besides its own content.
type Call struct {
	// ID is generated for each request; it is in every log line of the handler about it.
	ID string
	// RequestIdentity is the X-Broker-API-Request-Identity header, empty when it was not sent.
	// The handler has already put it on the response.
	RequestIdentity string
	// Region is the platform region in the path, for example "cf-eu10"; empty when the path has none.
	Region string
	// Principal is who was authenticated.
	Principal Principal
	// OriginatingIdentity is the user at the platform on whose behalf it calls; nil when the platform does not say.
	OriginatingIdentity *OriginatingIdentity
	// Version is the version in X-Broker-API-Version. Its major number is 2.
	Version Version
	// UserAgent is the User-Agent header as it came.
	UserAgent string
}

// OriginatingIdentity is the decoded X-Broker-API-Originating-Identity header.
type OriginatingIdentity struct {
	// Platform is the kind of platform, for example "cloudfoundry" or "kubernetes".
	Platform string
	// Value is a JSON object whose members depend on the platform, for example {"user_id":"..."}.
	Value json.RawMessage
}

// MaintenanceInfo is the version of what runs behind a plan or an instance.
type MaintenanceInfo struct {
	// Version is a semantic version 2.0.
	Version string `json:"version"`
	// Description is for people, and optional.
	Description string `json:"description,omitempty"`
}

// Hints are the optional service_id and plan_id of the requests that do not need them; each may be empty.
// Those that are given are in the catalog.
type Hints struct {
	ServiceID string
	PlanID    string
}

// ProvisionRequest orders an instance.
type ProvisionRequest struct {
	Call
	// InstanceID is chosen by the platform: not empty, valid UTF-8, no control characters, at most MaxIDLength bytes.
	InstanceID string
	// AcceptsIncomplete tells that the platform can wait for an asynchronous operation. A broker that cannot answer
	// at once returns AsyncRequired without it.
	AcceptsIncomplete bool

	ServiceID string
	PlanID    string
	// Service and Plan are the catalog's entries for the ids. Never nil.
	Service *Service
	Plan    *Plan

	// OrganizationGUID and SpaceGUID may be empty unless WithRequireOrgSpace is on.
	OrganizationGUID string
	SpaceGUID        string
	// Context and Parameters are JSON objects, nil when absent or null. Parameters are not checked against the
	// plan's schema.
	Context    json.RawMessage
	Parameters json.RawMessage
	// MaintenanceInfo is nil when not sent; else its version is the plan's.
	MaintenanceInfo *MaintenanceInfo
	// Body is the whole body as it came.
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
	// AcceptsIncomplete is as in ProvisionRequest.
	AcceptsIncomplete bool

	ServiceID string
	// PlanID is empty when the plan is not to change.
	PlanID string
	// Service is never nil. Plan is nil when PlanID is empty.
	Service *Service
	Plan    *Plan

	// Context and Parameters are JSON objects, nil when absent or null. Only the members present are to change.
	Context    json.RawMessage
	Parameters json.RawMessage
	// MaintenanceInfo is nil when not sent. Its version has been compared with the plan's only if PlanID was sent;
	// else the broker does it, see Plan.CheckMaintenanceInfo.
	MaintenanceInfo *MaintenanceInfo
	// PreviousValues is what the platform believes the instance to be; nil when absent. A broker ignores it.
	PreviousValues json.RawMessage
	Body           json.RawMessage
}

// DeprovisionRequest removes an instance.
type DeprovisionRequest struct {
	Call
	InstanceID string
	// AcceptsIncomplete is as in ProvisionRequest.
	AcceptsIncomplete bool
	// ServiceID and PlanID are in the catalog, but need not be those of the instance.
	ServiceID string
	PlanID    string
}

// LastOperationRequest asks where an operation on an instance stands.
type LastOperationRequest struct {
	Call
	InstanceID string
	// Operation is the value that the broker gave out; empty means the newest operation of the instance.
	Operation string
	Hints
}

// BindRequest creates a binding.
type BindRequest struct {
	Call
	InstanceID string
	// BindingID is chosen by the platform; the same rules as for an instance id apply.
	BindingID string
	// AcceptsIncomplete is as in ProvisionRequest.
	AcceptsIncomplete bool

	// ServiceID and PlanID are empty only if PredecessorBindingID is not; then Service and Plan may be nil.
	ServiceID string
	PlanID    string
	// Service and Plan are the catalog's entries; the plan is bindable.
	Service *Service
	Plan    *Plan

	// AppGUID is from bind_resource or, failing that, from the deprecated member of the body.
	AppGUID string
	// BindResource, Context and Parameters are JSON objects, nil when absent or null.
	BindResource json.RawMessage
	Context      json.RawMessage
	Parameters   json.RawMessage
	// PredecessorBindingID names the binding that this one is to replace; empty when it is no rotation.
	// If the plan is known it is binding_rotatable.
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
	// AcceptsIncomplete is as in ProvisionRequest.
	AcceptsIncomplete bool
	// ServiceID and PlanID are in the catalog, but need not be those of the instance.
	ServiceID string
	PlanID    string
}

// LastBindingOperationRequest asks where an operation on a binding stands.
type LastBindingOperationRequest struct {
	Call
	InstanceID string
	BindingID  string
	// Operation is the value that the broker gave out; empty means the newest operation of the binding.
	Operation string
	Hints
}
