package osb

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// maxSchemaSize is the maximum size of a parameters schema in the specification, in bytes.
const maxSchemaSize = 64 << 10

// semanticVersion is the pattern of semver.org 2.0.
var semanticVersion = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?` +
	`(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`)

// Validate validates a catalog against the specification and returns all problems (errors.Join), each with the invalid id. It checks only
// the $schema, the size and the references of a schema; compiling a schema needs a JSON schema
// library.
func (c *Catalog) Validate() error {
	v := catalogCheck{ids: map[string]string{}, names: map[string]string{}}
	if len(c.Services) == 0 {
		v.report("catalog", "has no service offerings")
	}
	for i := range c.Services {
		v.service(i, &c.Services[i])
	}
	return errors.Join(v.problems...)
}

type catalogCheck struct {
	problems []error
	// ids and names contain the first owner of each.
	ids   map[string]string
	names map[string]string
}

func (v *catalogCheck) report(where, format string, args ...any) {
	v.problems = append(v.problems, fmt.Errorf("%s: %s", where, fmt.Sprintf(format, args...)))
}

func (v *catalogCheck) service(i int, s *Service) {
	where := fmt.Sprintf("service %d (id %q)", i+1, s.ID)
	v.described(where, s.ID, s.Name, s.Description)
	if other, taken := v.names[s.Name]; taken && s.Name != "" {
		v.report(where, "has the name %q of %s", s.Name, other)
	}
	v.names[s.Name] = where
	for _, permission := range s.Requires {
		if !slices.Contains([]string{"syslog_drain", "route_forwarding", "volume_mount"}, permission) {
			v.report(where, "requires %q, which is not one of syslog_drain, route_forwarding, volume_mount", permission)
		}
	}
	if len(s.Plans) == 0 {
		v.report(where, "has no plans")
	}
	planNames := map[string]string{}
	for j := range s.Plans {
		p := &s.Plans[j]
		planWhere := fmt.Sprintf("%s, plan %d (id %q)", where, j+1, p.ID)
		if other, taken := planNames[p.Name]; taken && p.Name != "" {
			v.report(planWhere, "has the name %q of %s", p.Name, other)
		}
		planNames[p.Name] = planWhere
		v.plan(planWhere, s, p)
	}
}

func (v *catalogCheck) plan(where string, s *Service, p *Plan) {
	v.described(where, p.ID, p.Name, p.Description)
	if p.MaintenanceInfo != nil && !semanticVersion.MatchString(p.MaintenanceInfo.Version) {
		v.report(where, "maintenance_info.version %q is not a semantic version", p.MaintenanceInfo.Version)
	}
	if p.MaximumPollingDuration < 0 {
		v.report(where, "maximum_polling_duration is %d, but must be positive", p.MaximumPollingDuration)
	}
	if p.BindingRotatable != nil && *p.BindingRotatable && !s.IsBindable(p) {
		v.report(where, "is binding_rotatable but not bindable")
	}
	if p.Schemas == nil {
		return
	}
	if i := p.Schemas.ServiceInstance; i != nil {
		v.schema(where+", schemas.service_instance.create", i.Create)
		v.schema(where+", schemas.service_instance.update", i.Update)
	}
	if b := p.Schemas.ServiceBinding; b != nil {
		v.schema(where+", schemas.service_binding.create", b.Create)
	}
}

// described checks the common members of offerings and plans, whose ids must be unique among both.
func (v *catalogCheck) described(where, id, name, description string) {
	for _, member := range [...][2]string{{"id", id}, {"name", name}, {"description", description}} {
		if member[1] == "" {
			v.report(where, "%s is empty", member[0])
		}
	}
	if e := checkID("id", id); e != nil {
		v.report(where, "%s", e.Description)
	}
	if other, taken := v.ids[id]; taken && id != "" {
		v.report(where, "has the id of %s", other)
	}
	v.ids[id] = where
}

func (v *catalogCheck) schema(where string, s *InputSchema) {
	if s == nil || len(s.Parameters) == 0 {
		return
	}
	if len(s.Parameters) >= maxSchemaSize {
		v.report(where, "has %d bytes, but must have fewer than %d", len(s.Parameters), maxSchemaSize)
	}
	var schema map[string]any
	if err := json.Unmarshal(s.Parameters, &schema); err != nil || schema == nil {
		v.report(where, "is not a JSON object")
		return
	}
	if dialect, isText := schema["$schema"].(string); !isText || dialect == "" {
		v.report(where, "has no $schema")
	}
	for _, reference := range references(schema) {
		if !strings.HasPrefix(reference, "#") {
			v.report(where, "refers to %q outside the document", reference)
		}
	}
}

// references collects all values of $ref in a JSON value.
func references(value any) []string {
	var found []string
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			if text, isText := inner.(string); isText && name == "$ref" {
				found = append(found, text)
			}
			found = append(found, references(inner)...)
		}
		slices.Sort(found)
	case []any:
		for _, inner := range value {
			found = append(found, references(inner)...)
		}
	}
	return found
}
