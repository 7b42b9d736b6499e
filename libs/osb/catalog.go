package osb

import (
	"encoding/json"
	"time"
)

// Catalog contains the offerings of a broker.
type Catalog struct {
	Services []Service `json:"services"`
	// LastModified is the time of the last change of the catalog's configuration. It should not change with a restart. Zero omits the
	// Last-Modified header.
	LastModified time.Time `json:"-"`
}

// Service is a service offering.
type Service struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tags        []string `json:"tags,omitempty"`
	// Requires contains syslog_drain, route_forwarding or volume_mount.
	Requires []string `json:"requires,omitempty"`
	// Bindable is the default for the offering's plans.
	Bindable             bool `json:"bindable"`
	InstancesRetrievable bool `json:"instances_retrievable,omitempty"`
	BindingsRetrievable  bool `json:"bindings_retrievable,omitempty"`
	AllowContextUpdates  bool `json:"allow_context_updates,omitempty"`
	// Metadata is for the platform's user interface.
	Metadata        map[string]any   `json:"metadata,omitempty"`
	DashboardClient *DashboardClient `json:"dashboard_client,omitempty"`
	// PlanUpdateable is the default for the offering's plans.
	PlanUpdateable bool   `json:"plan_updateable"`
	Plans          []Plan `json:"plans"`
	// Withdrawn are plans that are not offered any more, but that instances may have. They are not in the answer of the catalog; requests about
	// existing instances may name them, new orders may not.
	Withdrawn []Plan `json:"-"`
}

// DashboardClient is for platforms through which users log in to the dashboard.
type DashboardClient struct {
	ID          string `json:"id"`
	Secret      string `json:"secret"`
	RedirectURI string `json:"redirect_uri,omitempty"`
}

// Plan is a plan of a service offering. A nil flag means the value of the offering, and for Free: true.
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
	// MaximumPollingDuration is in seconds; zero omits it.
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
	// Parameters is a JSON schema with a $schema and without external references.
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

// Plan returns the offered plan with an id, or nil.
func (s *Service) Plan(id string) *Plan { return planOf(s.Plans, id) }

// known returns the offered or withdrawn plan with an id, or nil.
func (s *Service) known(id string) *Plan {
	if p := s.Plan(id); p != nil {
		return p
	}
	return planOf(s.Withdrawn, id)
}

func planOf(plans []Plan, id string) *Plan {
	for i := range plans {
		if plans[i].ID == id {
			return &plans[i]
		}
	}
	return nil
}

// IsBindable reports whether instances of a plan of the offering can be bound.
func (s *Service) IsBindable(p *Plan) bool {
	if p.Bindable != nil {
		return *p.Bindable
	}
	return s.Bindable
}

// CheckMaintenanceInfo compares the maintenance_info of a request, which may be nil, with that of the plan. The error is
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
