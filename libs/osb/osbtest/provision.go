package osbtest

import (
	"maps"
	"net/url"

	"github.com/kyma-project/keb/libs/osb"
)

// refused sends a provision request that must be rejected with a status, and checks that nothing changed.
func (s *session) refused(status int, edits ...func(map[string]any)) response {
	s.Helper()
	id := s.newID()
	r := s.expect(s.put(id, edits...), status)
	s.untouched(id)
	return r
}

func provisionCases() []Case {
	return []Case{
		{ID: "P01", Name: "synchronously", run: func(s *session) {
			id := s.newID()
			s.expectCode(s.send(request{method: put, path: instancePath(id), body: s.order(s.cfg.Fixtures.PlanA)}), 422, osb.CodeAsyncRequired)
			s.untouched(id)
		}},
		{ID: "P02", Name: "accepts_incomplete is not true", run: func(s *session) {
			for _, value := range []string{"false", "maybe", ""} {
				id := s.newID()
				s.expectCode(s.send(request{
					method: put, path: instancePath(id), query: url.Values{"accepts_incomplete": {value}}, body: s.order(s.cfg.Fixtures.PlanA),
				}), 422, osb.CodeAsyncRequired)
				s.untouched(id)
			}
		}},
		{ID: "P03", Name: "accepted", run: func(s *session) {
			id, accepted := s.provisioned()
			if operation := accepted.text("operation"); operation == "" || len(operation) > 10_000 {
				s.Errorf("the operation has %d bytes", len(operation))
			}
			if _, present := accepted.body["credentials"]; present {
				s.Errorf("the answer has credentials")
			}
			s.expectEqual("dashboard_url", accepted.text("dashboard_url"), s.must(s.get(id), 200).text("dashboard_url"))
		}},
		{ID: "P11", Name: "no service_id", run: func(s *session) {
			s.refused(400, drop("service_id"))
			s.refused(400, set("service_id", ""))
			s.refused(400, set("service_id", 1))
		}},
		{ID: "P12", Name: "no plan_id", run: func(s *session) {
			s.refused(400, drop("plan_id"))
			s.refused(400, set("plan_id", ""))
		}},
		{ID: "P13", Name: "unknown service_id", run: func(s *session) { s.refused(400, set("service_id", uuid())) }},
		{ID: "P14", Name: "unknown plan_id", run: func(s *session) { s.refused(400, set("plan_id", uuid())) }},
		{ID: "P15", Name: "plan of another offering", Needs: []string{"OtherPlan"}, run: func(s *session) {
			s.refused(400, set("plan_id", s.cfg.Fixtures.OtherPlan))
		}},
		{ID: "P16", Name: "no organization_guid or space_guid", run: func(s *session) {
			for _, name := range []string{"organization_guid", "space_guid"} {
				if s.cfg.RequireOrgSpace {
					s.refused(400, drop(name))
				} else {
					s.expect(s.put(s.newID(), drop(name)), 202)
				}
			}
		}},
		{ID: "P17", Name: "parameters break the schema", Needs: []string{"InvalidParameters", "InvalidPointer"}, run: func(s *session) {
			r := s.refused(400, set("parameters", s.cfg.Fixtures.InvalidParameters))
			s.expectContains("description", r.text("description"), s.cfg.Fixtures.InvalidPointer)
		}},
		{ID: "P18", Name: "parameters are no object", run: func(s *session) {
			for _, value := range []any{[]any{}, "text", 7, true} {
				s.refused(400, set("parameters", value))
			}
		}},
		{ID: "P19", Name: "no parameters", Needs: []string{"PlanOptional"}, run: func(s *session) {
			plan := set("plan_id", s.cfg.Fixtures.PlanOptional)
			s.expect(s.put(s.newID(), plan, drop("parameters")), 202)
			s.expect(s.put(s.newID(), plan, set("parameters", map[string]any{})), 202)
		}},
		{ID: "P20", Name: "maintenance version of the catalog", Needs: []string{"PlanMaintained"}, run: func(s *session) {
			info := map[string]any{"version": s.maintenanceVersion(), "description": "ignored", "future": 1}
			s.expect(s.putMaintained(s.newID(), info), 202)
		}},
		{ID: "P21", Name: "another maintenance version", Needs: []string{"PlanMaintained"}, run: func(s *session) {
			id := s.newID()
			s.expectCode(s.putMaintained(id, map[string]any{"version": "99.98.97"}), 422, osb.CodeMaintenanceInfoConflict)
			s.untouched(id)
		}},
		{ID: "P22", Name: "a maintenance version where the plan has none", run: func(s *session) {
			id := s.newID()
			s.expectCode(s.put(id, set("maintenance_info", map[string]any{"version": "1.0.0"})), 422, osb.CodeMaintenanceInfoConflict)
			s.untouched(id)
		}},
		{ID: "P29", Name: "an account that is not allowed", Needs: []string{"RejectedContext"}, run: func(s *session) {
			s.refused(422, setIn("context", s.cfg.Fixtures.RejectedContext))
		}},
		{ID: "P30", Name: "context without an identifier", Needs: []string{"RequiredMembers"}, run: func(s *session) {
			for _, name := range s.cfg.Fixtures.RequiredMembers {
				r := s.refused(400, func(body map[string]any) {
					inner, _ := body["context"].(map[string]any)
					inner = maps.Clone(inner)
					delete(inner, name)
					body["context"] = inner
				})
				s.expectContains("description", r.text("description"), name)
			}
		}},
	}
}

func (s *session) putMaintained(id string, info map[string]any) response {
	s.Helper()
	return s.send(request{
		method: put, path: instancePath(id), query: incomplete,
		body: s.order(s.cfg.Fixtures.PlanMaintained, set("maintenance_info", info)),
	})
}

func (s *session) maintenanceVersion() (version string) {
	s.Helper()
	s.eachPlan(func(_, plan map[string]any) {
		if info, ok := plan["maintenance_info"].(map[string]any); ok && plan["id"] == s.cfg.Fixtures.PlanMaintained {
			version, _ = info["version"].(string)
		}
	})
	return version
}
