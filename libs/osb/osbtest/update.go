package osbtest

import (
	"maps"

	"github.com/kyma-project/keb/libs/osb"
)

// patch sends an update with the service id and the edits.
func (s *session) patch(id string, edits ...func(map[string]any)) response {
	s.Helper()
	return s.send(request{method: patch, path: instancePath(id), query: incomplete, body: s.changes(edits...)})
}

func (s *session) changes(edits ...func(map[string]any)) map[string]any {
	body := map[string]any{"service_id": s.cfg.Fixtures.ServiceID}
	for _, edit := range edits {
		edit(body)
	}
	return body
}

// changed is an edit that changes the parameters.
func (s *session) changed() func(map[string]any) {
	return set("parameters", s.cfg.Fixtures.ChangedParameters)
}

// refusedUpdate sends an update that must be rejected with a status, and checks that the instance is unchanged.
func (s *session) refusedUpdate(status int, id string, edits ...func(map[string]any)) response {
	s.Helper()
	before := s.must(s.get(id), 200)
	r := s.expect(s.patch(id, edits...), status)
	s.expectEqual("the instance", string(s.get(id).raw), string(before.raw))
	return r
}

// updated sends an update and waits for its operation, if there is one.
func (s *session) updated(id string, edits ...func(map[string]any)) {
	s.Helper()
	if r := s.must(s.patch(id, edits...), 200, 202); r.status == 202 {
		s.ended(id, r, osb.StateSucceeded)
	}
}

func updateCases() []Case {
	updates := func(more ...string) []string { return append([]string{"Updates", "ChangedParameters"}, more...) }
	return []Case{
		{ID: "U01", Name: "synchronously", Needs: updates(), run: func(s *session) {
			id, _ := s.provisioned()
			for _, edits := range [][]func(map[string]any){{s.changed()}, nil} {
				s.expectCode(s.send(request{method: patch, path: instancePath(id), body: s.changes(edits...)}), 422, osb.CodeAsyncRequired)
			}
		}},
		{ID: "U02", Name: "no service_id", Needs: updates(), run: func(s *session) {
			id, _ := s.provisioned()
			s.refusedUpdate(400, id, drop("service_id"), s.changed())
		}},
		{ID: "U03", Name: "another service_id", Needs: updates(), run: func(s *session) {
			id, _ := s.provisioned()
			s.refusedUpdate(400, id, set("service_id", "unknown"), s.changed())
		}},
		{ID: "U04", Name: "changed parameters", Needs: updates(), run: func(s *session) {
			id, _ := s.provisioned()
			if s.must(s.patch(id, s.changed()), 202).text("operation") == "" {
				s.Errorf("no operation")
			}
		}},
		{ID: "U05", Name: "again while running", Needs: updates("Hold"), run: func(s *session) {
			id, _ := s.provisioned()
			s.use(s.cfg.Hooks.Hold)
			s.expectSameOperation(s.patch(id, s.changed()), s.must(s.patch(id, s.changed()), 202))
		}},
		{ID: "U06", Name: "another one while running", Needs: updates("Hold", "PlanB"), run: func(s *session) {
			id, _ := s.provisioned()
			s.use(s.cfg.Hooks.Hold)
			s.must(s.patch(id, s.changed()), 202)
			s.expectCode(s.patch(id, set("plan_id", s.cfg.Fixtures.PlanB)), 422, osb.CodeConcurrencyError)
		}},
		{ID: "U07", Name: "while provisioning or deprovisioning", Needs: updates("Hold"), run: func(s *session) {
			id, _, _ := s.running()
			s.expectCode(s.patch(id, s.changed()), 422, osb.CodeConcurrencyError)
			s.must(s.delete(id), 202)
			s.expectCode(s.patch(id, s.changed()), 422, osb.CodeConcurrencyError)
		}},
		{ID: "U08", Name: "nothing to change", Needs: updates(), run: func(s *session) {
			id, _ := s.provisioned()
			s.expect(s.patch(id), 200)
		}},
		{ID: "U09", Name: "another plan", Needs: updates("PlanB"), run: func(s *session) {
			id, _ := s.provisioned()
			s.ended(id, s.patch(id, set("plan_id", s.cfg.Fixtures.PlanB)), osb.StateSucceeded)
			s.expectEqual("plan_id", s.must(s.get(id), 200).text("plan_id"), s.cfg.Fixtures.PlanB)
		}},
		{ID: "U10", Name: "change from a fixed plan", Needs: updates("PlanFixed", "PlanB"), run: func(s *session) {
			id, _ := s.provisioned(set("plan_id", s.cfg.Fixtures.PlanFixed))
			r := s.refusedUpdate(422, id, set("plan_id", s.cfg.Fixtures.PlanB))
			s.expectEqual("update_repeatable", r.body["update_repeatable"], any(false))
		}},
		{ID: "U11", Name: "an unknown plan", Needs: updates(), run: func(s *session) {
			id, _ := s.provisioned()
			s.refusedUpdate(400, id, set("plan_id", "unknown"))
			// A broker with one offering has no plan of another.
			if other := s.cfg.Fixtures.OtherPlan; other != "" {
				s.refusedUpdate(400, id, set("plan_id", other))
			}
		}},
		{ID: "U12", Name: "no plan_id", Needs: updates(), run: func(s *session) {
			id, _ := s.provisioned()
			s.updated(id, s.changed())
			s.expectEqual("plan_id", s.must(s.get(id), 200).text("plan_id"), s.cfg.Fixtures.PlanA)
		}},
		{ID: "U13", Name: "no parameters", Needs: updates("PlanB"), run: func(s *session) {
			id, _ := s.provisioned()
			before := s.must(s.get(id), 200).body["parameters"]
			s.updated(id, set("plan_id", s.cfg.Fixtures.PlanB))
			s.expectEqual("parameters", s.must(s.get(id), 200).body["parameters"], before)
		}},
		{ID: "U14", Name: "only some parameters", Needs: updates(), run: func(s *session) {
			id, _ := s.provisioned()
			before, _ := s.must(s.get(id), 200).body["parameters"].(map[string]any)
			s.updated(id, s.changed())
			want := maps.Clone(before)
			maps.Copy(want, s.cfg.Fixtures.ChangedParameters)
			s.expectParameters(s.must(s.get(id), 200), want)
		}},
		{ID: "U15", Name: "only the context", Needs: updates("DisplayContext"), run: func(s *session) {
			id, _ := s.provisioned()
			before := s.must(s.get(id), 200)
			context, _ := s.order(s.cfg.Fixtures.PlanA, setIn("context", s.cfg.Fixtures.DisplayContext))["context"].(map[string]any)
			s.updated(id, set("context", context))
			after := s.must(s.get(id), 200)
			s.expectEqual("plan_id", after.text("plan_id"), before.text("plan_id"))
			s.expectEqual("parameters", after.body["parameters"], before.body["parameters"])
		}},
		{ID: "U16", Name: "a newer maintenance version", Needs: updates("PlanMaintained", "RaiseMaintenance"), run: func(s *session) {
			id, _ := s.provisioned(set("plan_id", s.cfg.Fixtures.PlanMaintained))
			s.use(s.cfg.Hooks.RaiseMaintenance)
			version := s.maintenanceVersion()
			s.ended(id, s.patch(id, set("maintenance_info", map[string]any{"version": version})), osb.StateSucceeded)
			if info, ok := s.must(s.get(id), 200).body["maintenance_info"].(map[string]any); ok {
				s.expectEqual("maintenance_info.version", info["version"], any(version))
			}
		}},
		{ID: "U17", Name: "another maintenance version", Needs: updates(), run: func(s *session) {
			id, _ := s.provisioned()
			r := s.refusedUpdate(422, id, set("maintenance_info", map[string]any{"version": "99.98.97"}))
			s.expectEqual("error", r.text("error"), osb.CodeMaintenanceInfoConflict)
		}},
		{ID: "U18", Name: "parameters break the schema", Needs: updates("InvalidParameters"), run: func(s *session) {
			id, _ := s.provisioned()
			s.refusedUpdate(400, id, set("parameters", s.cfg.Fixtures.InvalidParameters))
			for name, value := range s.cfg.Fixtures.CreateOnlyParameters {
				r := s.refusedUpdate(400, id, set("parameters", map[string]any{name: value}))
				s.expectContains("the description", r.text("description"), name)
			}
		}},
		{ID: "U19", Name: "previous values that are wrong", Needs: updates(), run: func(s *session) {
			id, _ := s.provisioned()
			s.updated(id, s.changed(), set("previous_values", map[string]any{"plan_id": "another"}))
		}},
		{ID: "U20", Name: "an unknown instance", Needs: updates(), run: func(s *session) {
			s.expect(s.patch(uuid(), s.changed()), 404)
			id, _ := s.provisioned()
			s.deprovisioned(id)
			s.expect(s.patch(id, s.changed()), 404)
		}},
		{ID: "U21", Name: "a failed update", Needs: updates("Fail"), run: func(s *session) {
			id, _ := s.provisioned()
			before := s.must(s.get(id), 200)
			s.use(s.cfg.Hooks.Fail)
			s.ended(id, s.patch(id, s.changed()), osb.StateFailed)
			s.expectEqual("the instance", string(s.get(id).raw), string(before.raw))
		}},
		{ID: "U22", Name: "a refused update changes nothing", Needs: updates(), run: func(s *session) {
			id, _ := s.provisioned()
			s.refusedUpdate(400, id, set("parameters", []any{}))
			s.refusedUpdate(400, id, set("plan_id", 7))
		}},
	}
}
