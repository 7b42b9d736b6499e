package osbtest

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/Masterminds/semver/v3"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

func sortedNames(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

// offerings reads the catalog without the types of package osb, which would hide misspelled members.
func (s *session) offerings() []map[string]any {
	s.Helper()
	r := s.must(s.catalogWith(nil), 200)
	return objects(r.body["services"])
}

func objects(value any) []map[string]any {
	list, _ := value.([]any)
	var out []map[string]any
	for _, one := range list {
		if object, ok := one.(map[string]any); ok {
			out = append(out, object)
		}
	}
	return out
}

// eachPlan calls f with every plan of every offering.
func (s *session) eachPlan(f func(offering, plan map[string]any)) {
	s.Helper()
	for _, offering := range s.offerings() {
		for _, plan := range objects(offering["plans"]) {
			f(offering, plan)
		}
	}
}

func (s *session) expectTexts(what string, object map[string]any, names ...string) {
	s.Helper()
	for _, name := range names {
		if text, _ := object[name].(string); text == "" {
			s.Errorf("%s: %s is %v, want a non-empty string", what, name, object[name])
		}
	}
}

// expectFlags checks that existing members are boolean.
func (s *session) expectFlags(what string, object map[string]any, names ...string) {
	s.Helper()
	for _, name := range names {
		if value, present := object[name]; present {
			if _, ok := value.(bool); !ok {
				s.Errorf("%s: %s is %v, want a boolean", what, name, value)
			}
		}
	}
}

func (s *session) expectUnique(what string, seen map[any]bool, value any) {
	s.Helper()
	if seen[value] {
		s.Errorf("%s %v is duplicated", what, value)
	}
	seen[value] = true
}

func catalogCases() []Case {
	return []Case{
		{ID: "C01", Name: "the catalog is served", run: func(s *session) {
			if len(s.offerings()) == 0 {
				s.Errorf("no services")
			}
		}},
		{ID: "C02", Name: "offerings are complete", run: func(s *session) {
			for _, offering := range s.offerings() {
				s.expectTexts("offering", offering, "id", "name", "description")
				if _, ok := offering["bindable"].(bool); !ok {
					s.Errorf("offering %v: bindable is %v", offering["id"], offering["bindable"])
				}
				if len(objects(offering["plans"])) == 0 {
					s.Errorf("offering %v has no plans", offering["id"])
				}
			}
		}},
		{ID: "C03", Name: "plans are complete", run: func(s *session) {
			for _, offering := range s.offerings() {
				names := map[any]bool{}
				for _, plan := range objects(offering["plans"]) {
					s.expectTexts("plan", plan, "id", "name", "description")
					s.expectUnique("the plan name", names, plan["name"])
				}
			}
		}},
		{ID: "C04", Name: "ids are unique", run: func(s *session) {
			ids, names := map[any]bool{}, map[any]bool{}
			for _, offering := range s.offerings() {
				s.expectUnique("the id", ids, offering["id"])
				s.expectUnique("the offering name", names, offering["name"])
				for _, plan := range objects(offering["plans"]) {
					s.expectUnique("the id", ids, plan["id"])
				}
			}
		}},
		{ID: "C05", Name: "flags are spelt right and boolean", run: func(s *session) {
			for _, offering := range s.offerings() {
				s.expectFlags("offering", offering, "bindable", "plan_updateable", "instances_retrievable", "bindings_retrievable", "allow_context_updates")
				if _, present := offering["plan_updatable"]; present {
					s.Errorf("offering %v has plan_updatable, which is spelt plan_updateable", offering["id"])
				}
				requires, _ := offering["requires"].([]any)
				for _, permission := range requires {
					if !slices.Contains([]any{"syslog_drain", "route_forwarding", "volume_mount"}, permission) {
						s.Errorf("offering %v requires %v", offering["id"], permission)
					}
				}
			}
			s.eachPlan(func(_, plan map[string]any) {
				s.expectFlags("plan", plan, "free", "bindable", "binding_rotatable", "plan_updateable")
				if _, present := plan["plan_updatable"]; present {
					s.Errorf("plan %v has plan_updatable, which is spelt plan_updateable", plan["id"])
				}
			})
		}},
		{ID: "C06", Name: "schemas compile on their own", run: func(s *session) {
			s.eachPlan(func(_, plan map[string]any) { s.expectSchemas(plan) })
		}},
		{ID: "C07", Name: "maintenance versions are semantic", run: func(s *session) {
			s.eachPlan(func(_, plan map[string]any) {
				if info, ok := plan["maintenance_info"].(map[string]any); ok {
					text, _ := info["version"].(string)
					if _, err := semver.StrictNewVersion(text); err != nil {
						s.Errorf("plan %v: maintenance_info.version %q: %v", plan["id"], text, err)
					}
				}
			})
		}},
		{ID: "C08", Name: "maximum polling duration", run: func(s *session) {
			s.eachPlan(func(_, plan map[string]any) {
				value, present := plan["maximum_polling_duration"]
				seconds, _ := value.(float64)
				if present && (seconds < 1 || seconds != float64(int(seconds))) {
					s.Errorf("plan %v: maximum_polling_duration is %v, want a positive integer", plan["id"], value)
				}
				longest := s.cfg.Fixtures.LongestOperation
				if present && plan["id"] == s.cfg.Fixtures.PlanA && time.Duration(seconds)*time.Second < longest {
					s.Errorf("plan %v: maximum_polling_duration is %v, but an operation may take %s", plan["id"], value, longest)
				}
			})
		}},
		{ID: "C09", Name: "only bindable plans rotate", run: func(s *session) {
			s.eachPlan(func(offering, plan map[string]any) {
				bindable, own := plan["bindable"].(bool)
				if !own {
					bindable, _ = offering["bindable"].(bool)
				}
				if plan["binding_rotatable"] == true && !bindable {
					s.Errorf("plan %v is binding_rotatable but not bindable", plan["id"])
				}
			})
		}},
		{ID: "C10", Name: "the same bytes after a restart", Needs: []string{"Restart"}, run: func(s *session) {
			before := s.must(s.catalogWith(nil), 200)
			s.expectEqual("a second read", string(s.catalogWith(nil).raw), string(before.raw))
			if err := s.cfg.Hooks.Restart(s.Context()); err != nil {
				s.Fatalf("hook: %v", err)
			}
			s.expectEqual("after a restart", string(s.catalogWith(nil).raw), string(before.raw))
		}},
		{ID: "C11", Name: "a strong ETag", run: func(s *session) {
			r := s.must(s.catalogWith(nil), 200)
			if etag := r.header.Get("ETag"); len(etag) < 3 || etag[0] != '"' || etag[len(etag)-1] != '"' {
				s.Errorf("ETag: %q", etag)
			}
			if cache := r.header.Get("Cache-Control"); contains(cache, "no-store") {
				s.Errorf("Cache-Control: %q", cache)
			}
		}},
		{ID: "C12", Name: "a known ETag", run: func(s *session) {
			etag := s.etag()
			for _, value := range []string{etag, `"other", ` + etag, "W/" + etag, "*"} {
				if r := s.expect(s.catalogWith(http.Header{"If-None-Match": {value}}), 304); len(r.raw) > 0 {
					s.Errorf("If-None-Match %s: the body is %.100q", value, r.raw)
				}
			}
		}},
		{ID: "C13", Name: "another ETag", run: func(s *session) {
			full := s.must(s.catalogWith(nil), 200)
			r := s.expect(s.catalogWith(http.Header{"If-None-Match": {`"other"`}}), 200)
			s.expectEqual("the body", string(r.raw), string(full.raw))
		}},
		{ID: "C14", Name: "a changed catalog has another ETag", Needs: []string{"ChangeCatalog"}, run: func(s *session) {
			etag := s.etag()
			s.use(s.cfg.Hooks.ChangeCatalog)
			if s.etag() == etag {
				s.Errorf("the ETag is still %s", etag)
			}
			s.expect(s.catalogWith(http.Header{"If-None-Match": {etag}}), 200)
		}},
		{ID: "C15", Name: "modified since", run: func(s *session) {
			modified := s.must(s.catalogWith(nil), 200).header.Get("Last-Modified")
			at, err := http.ParseTime(modified)
			if err != nil {
				s.Fatalf("Last-Modified %q: %v", modified, err)
			}
			later, earlier := at.Add(time.Hour).Format(http.TimeFormat), at.Add(-time.Hour).Format(http.TimeFormat)
			s.expect(s.catalogWith(http.Header{"If-Modified-Since": {modified}}), 304)
			s.expect(s.catalogWith(http.Header{"If-Modified-Since": {later}}), 304)
			s.expect(s.catalogWith(http.Header{"If-Modified-Since": {earlier}}), 200)
			s.expect(s.catalogWith(http.Header{"If-Modified-Since": {later}, "If-None-Match": {`"other"`}}), 200)
			s.expect(s.catalogWith(http.Header{"If-Modified-Since": {earlier}, "If-None-Match": {s.etag()}}), 304)
		}},
		{ID: "C16", Name: "a faulty catalog is refused at start", Needs: []string{"StartBroken"}, run: func(s *session) {
			for _, fault := range []CatalogFault{DuplicatePlanID, InvalidSchema} {
				id, refusal := s.cfg.Hooks.StartBroken(s.Context(), fault)
				if refusal == nil {
					s.Errorf("%s: the broker started", fault)
					continue
				}
				s.expectContains(string(fault), refusal.Error(), id)
			}
		}},
	}
}

func (s *session) etag() string {
	s.Helper()
	return s.must(s.catalogWith(nil), 200).header.Get("ETag")
}

func (s *session) expectSchemas(plan map[string]any) {
	s.Helper()
	groups, _ := plan["schemas"].(map[string]any)
	for group, kinds := range groups {
		kinds, _ := kinds.(map[string]any)
		for kind, holder := range kinds {
			holder, _ := holder.(map[string]any)
			schema, present := holder["parameters"]
			if !present {
				continue
			}
			if err := compiles(schema); err != "" {
				s.Errorf("plan %v, schemas.%s.%s: %s", plan["id"], group, kind, err)
			}
		}
	}
}

// compiles returns the error of an invalid schema. The compiler loads no external schema.
func compiles(schema any) string {
	object, ok := schema.(map[string]any)
	if !ok {
		return "it is no JSON object"
	}
	if dialect, _ := object["$schema"].(string); dialect == "" {
		return "it has no $schema"
	}
	raw, err := json.Marshal(schema)
	if err != nil || len(raw) >= 64<<10 {
		return "it is larger than 64 kB"
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return err.Error()
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(jsonschema.SchemeURLLoader{})
	if err := compiler.AddResource("mem:///schema", document); err != nil {
		return err.Error()
	}
	if _, err := compiler.Compile("mem:///schema"); err != nil {
		return err.Error()
	}
	return ""
}
