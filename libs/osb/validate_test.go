package osb_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/osb"
)

func TestValidate_InvalidCatalog_NamesEveryProblem(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	schema := func(s string) *osb.Schemas {
		return &osb.Schemas{ServiceInstance: &osb.InstanceSchemas{Create: &osb.InputSchema{Parameters: json.RawMessage(s)}}}
	}
	tests := map[string]struct {
		change func(c *osb.Catalog)
		want   []string
	}{
		"no offerings":           {func(c *osb.Catalog) { c.Services = nil }, []string{"no service offerings"}},
		"no plans":               {func(c *osb.Catalog) { c.Services[0].Plans = nil }, []string{`"s1"`, "no plans"}},
		"empty plan name":        {func(c *osb.Catalog) { c.Services[0].Plans[1].Name = "" }, []string{`"pb"`, "name is empty"}},
		"empty description":      {func(c *osb.Catalog) { c.Services[0].Description = "" }, []string{`"s1"`, "description is empty"}},
		"plan id twice":          {func(c *osb.Catalog) { c.Services[1].Plans[0].ID = "pa" }, []string{`"pa"`, "has the id of"}},
		"plan id of an offering": {func(c *osb.Catalog) { c.Services[1].Plans[0].ID = "s1" }, []string{`"s1"`, "has the id of"}},
		"offering name twice":    {func(c *osb.Catalog) { c.Services[1].Name = "one" }, []string{`"s2"`, "has the name"}},
		"plan name twice":        {func(c *osb.Catalog) { c.Services[0].Plans[1].Name = "a" }, []string{`"pb"`, "has the name"}},
		"unknown permission":     {func(c *osb.Catalog) { c.Services[0].Requires = []string{"root"} }, []string{`"root"`}},
		"version": {
			func(c *osb.Catalog) { c.Services[0].Plans[0].MaintenanceInfo = &osb.MaintenanceInfo{Version: "1.2"} },
			[]string{`"1.2"`, "semantic version"},
		},
		"negative polling": {
			func(c *osb.Catalog) { c.Services[0].Plans[0].MaximumPollingDuration = -1 }, []string{"maximum_polling_duration"},
		},
		"rotatable but not bindable": {
			func(c *osb.Catalog) {
				c.Services[0].Plans[0].BindingRotatable, c.Services[0].Plans[0].Bindable = &yes, &no
			},
			[]string{`"pa"`, "binding_rotatable"},
		},
		"schema without dialect": {func(c *osb.Catalog) { c.Services[0].Plans[0].Schemas = schema(`{}`) }, []string{`"pa"`, "$schema"}},
		"schema no object":       {func(c *osb.Catalog) { c.Services[0].Plans[0].Schemas = schema(`[]`) }, []string{`"pa"`, "not a JSON object"}},
		"schema too large": {
			func(c *osb.Catalog) {
				c.Services[0].Plans[0].Schemas = schema(`{"$schema":"x","a":"` + strings.Repeat("a", 64<<10) + `"}`)
			}, []string{`"pa"`, "65536"},
		},
		"reference outside": {
			func(c *osb.Catalog) {
				c.Services[0].Plans[0].Schemas = schema(`{"$schema":"x","anyOf":[{"$ref":"http://example.com/x"}]}`)
			}, []string{`"pa"`, `"http://example.com/x"`},
		},
		"two at once": {
			func(c *osb.Catalog) { c.Services[0].Name, c.Services[1].Plans[0].Name = "", "" }, []string{`"s1"`, `"px"`},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := validCatalog()
			tt.change(c)
			err := c.Validate()
			if err == nil {
				t.Fatal("no problem found")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not contain %q", err, want)
				}
			}
		})
	}
	if err := validCatalog().Validate(); err != nil {
		t.Errorf("a valid catalog: %v", err)
	}
}

func validCatalog() *osb.Catalog {
	plan := func(id, name string) osb.Plan { return osb.Plan{ID: id, Name: name, Description: "plan " + name} }
	return &osb.Catalog{Services: []osb.Service{
		{ID: "s1", Name: "one", Description: "first", Bindable: true, Plans: []osb.Plan{plan("pa", "a"), plan("pb", "b")}},
		{ID: "s2", Name: "two", Description: "second", Plans: []osb.Plan{plan("px", "a")}},
	}}
}
