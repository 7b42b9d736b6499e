package osb

import (
	"encoding/json"
	"time"
)

// Catalog is what a broker offers.
type Catalog struct {
	Services []Service `json:"services"`
	// LastModified is when the configuration behind the catalog changed. It should be the same after a restart with the
	// same configuration. Zero sends no Last-Modified header.
	LastModified time.Time `json:"-"`
}

// Service is a service offering.
type Service struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tags        []string `json:"tags,omitempty"`
	// Requires holds syslog_drain, route_forwarding or volume_mount.
	Requires []string `json:"requires,omitempty"`
	// Bindable is the default for its plans.
	Bindable             bool `json:"bindable"`
	InstancesRetrievable bool `json:"instances_retrievable,omitempty"`
	BindingsRetrievable  bool `json:"bindings_retrievable,omitempty"`
	AllowContextUpdates  bool `json:"allow_context_updates,omitempty"`
	// Metadata is for the platform's user interface.
	Metadata        map[string]any   `json:"metadata,omitempty"`
	DashboardClient *DashboardClient `json:"dashboard_client,omitempty"`
	// PlanUpdateable is the default for its plans.
	PlanUpdateable bool   `json:"plan_updateable"`
	Plans          []Plan `json:"plans"`
}

// DashboardClient is for platforms that let the dashboard log their users in.
type DashboardClient struct {
	ID          string `json:"id"`
	Secret      string `json:"secret"`
	RedirectURI string `json:"redirect_uri,omitempty"`
}

// Plan is a plan of a service offering. A nil flag means what the offering says, and for Free: true.
type Plan struct {
	ID               string         `json:"id"`
	Name             string         `json:"name"`
	Description      string         `json:"description"`
	Metadata         map[string]any `json:"metadata,omitempty"`
	Free             *bool          `json:"free,omitempty"`
	Bindable         *bool          `json:"bindable,omitempty"`
	BindingRotatable *bool          `json:"binding_rotatable,omitempty"`
	PlanUpdateable   *bool          `json:"plan_updateable,omitempty"`
	Schemas          *Schemas       `json:"schemas,omitempty"`
	// MaximumPollingDuration is in seconds; zero means not said.
	MaximumPollingDuration int              `json:"maximum_polling_duration,omitempty"`
	MaintenanceInfo        *MaintenanceInfo `json:"maintenance_info,omitempty"`
}

// Schemas are the JSON schemas of the parameters of a plan.
type Schemas struct {
	ServiceInstance *InstanceSchemas `json:"service_instance,omitempty"`
	ServiceBinding  *BindingSchemas  `json:"service_binding,omitempty"`
}

// InstanceSchemas are the schemas for provisioning and updates.
type InstanceSchemas struct {
	Create *InputSchema `json:"create,omitempty"`
	Update *InputSchema `json:"update,omitempty"`
}

// BindingSchemas are the schemas for bindings.
type BindingSchemas struct {
	Create *InputSchema `json:"create,omitempty"`
}

// InputSchema is the schema of the parameters of one kind of request.
type InputSchema struct {
	// Parameters is a JSON schema, with its $schema and without references that leave it.
	Parameters json.RawMessage `json:"parameters,omitempty"`
}

// Service returns the offering with an id, or nil.
func (c *Catalog) Service(id string) *Service {
	for i := range c.Services {
		if c.Services[i].ID == id {
			return &c.Services[i]
		}
	}
	return nil
}

// Plan returns the plan of the offering with an id, or nil.
func (s *Service) Plan(id string) *Plan {
	for i := range s.Plans {
		if s.Plans[i].ID == id {
			return &s.Plans[i]
		}
	}
	return nil
}

// IsBindable tells whether instances of a plan of the offering can be bound.
func (s *Service) IsBindable(p *Plan) bool {
	if p.Bindable != nil {
		return *p.Bindable
	}
	return s.Bindable
}

// IsPlanUpdateable tells whether instances of a plan of the offering can change to another plan.
func (s *Service) IsPlanUpdateable(p *Plan) bool {
	if p.PlanUpdateable != nil {
		return *p.PlanUpdateable
	}
	return s.PlanUpdateable
}

// CheckMaintenanceInfo compares what a request sent, nil for nothing, with what the plan has. The error is
// MaintenanceInfoConflict.
func (p *Plan) CheckMaintenanceInfo(sent *MaintenanceInfo) *Error {
	switch {
	case sent == nil:
		return nil
	case p.MaintenanceInfo == nil:
		return MaintenanceInfoConflict("maintenance_info was sent, but plan %q has none: read the catalog again", p.Name)
	case p.MaintenanceInfo.Version != sent.Version:
		return MaintenanceInfoConflict("maintenance_info.version is not %q, the version of plan %q: read the catalog again",
			p.MaintenanceInfo.Version, p.Name)
	}
	return nil
}
