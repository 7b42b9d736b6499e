package osbtest

import (
	"net/url"

	"github.com/kyma-project/keb/libs/osb"
)

func fetchCases() []Case {
	return []Case{
		{ID: "F01", Name: "while provisioning", Needs: []string{"Hold"}, run: func(s *session) {
			id, _, _ := s.running()
			s.expect(s.get(id), 404)
		}},
		{ID: "F02", Name: "at once after success", run: func(s *session) {
			for range s.cfg.rounds(200) {
				id, _ := s.provisioned()
				s.must(s.get(id), 200)
			}
		}},
		{ID: "F03", Name: "what is told", run: func(s *session) {
			id, accepted := s.provisioned()
			r := s.must(s.get(id), 200)
			s.expectEqual("service_id", r.text("service_id"), s.cfg.Fixtures.ServiceID)
			s.expectEqual("plan_id", r.text("plan_id"), s.cfg.Fixtures.PlanA)
			s.expectEqual("dashboard_url", r.text("dashboard_url"), accepted.text("dashboard_url"))
			if _, ok := r.body["parameters"].(map[string]any); !ok {
				s.Errorf("parameters: %v, want an object", r.body["parameters"])
			}
			if metadata, present := r.body["metadata"]; present {
				if _, ok := metadata.(map[string]any); !ok {
					s.Errorf("metadata: %v, want an object", metadata)
				}
			}
		}},
		{ID: "F04", Name: "what is not there", Needs: []string{"Fail"}, run: func(s *session) {
			s.expect(s.get(uuid()), 404)
			s.expect(s.get(s.failed()), 404)
			id, _ := s.provisioned()
			s.deprovisioned(id)
			s.expect(s.get(id), 404)
		}},
		{ID: "F05", Name: "during an update", Needs: []string{"Updates", "Hold", "ChangedParameters"}, run: func(s *session) {
			id, _ := s.provisioned()
			s.use(s.cfg.Hooks.Hold)
			s.must(s.patch(id, set("parameters", s.cfg.Fixtures.ChangedParameters)), 202)
			s.expectCode(s.get(id), 422, osb.CodeConcurrencyError)
		}},
		{ID: "F06", Name: "once a deprovisioning was accepted", Needs: []string{"Hold"}, run: func(s *session) {
			id, _ := s.provisioned()
			s.use(s.cfg.Hooks.Hold)
			s.must(s.delete(id), 202)
			s.expect(s.get(id), 404)
		}},
		{ID: "F07", Name: "after an update", Needs: []string{"Updates", "ChangedParameters"}, run: func(s *session) {
			id, _ := s.provisioned()
			s.ended(id, s.patch(id, set("parameters", s.cfg.Fixtures.ChangedParameters)), osb.StateSucceeded)
			s.expectParameters(s.must(s.get(id), 200), s.cfg.Fixtures.ChangedParameters)
		}},
		{ID: "F08", Name: "with an older minor version", run: func(s *session) {
			id, _ := s.provisioned()
			s.expect(s.send(request{path: instancePath(id), header: version("2.13")}), 200)
		}},
		{ID: "F09", Name: "with hints", run: func(s *session) {
			id, _ := s.provisioned()
			s.expect(s.send(request{path: instancePath(id), query: s.ids()}), 200)
			for _, name := range []string{"service_id", "plan_id"} {
				s.expect(s.send(request{path: instancePath(id), query: url.Values{name: {"unknown"}}}), 400)
			}
		}},
	}
}

// expectParameters checks that the parameters of an instance have these members.
func (s *session) expectParameters(r response, want map[string]any) {
	s.Helper()
	parameters, _ := r.body["parameters"].(map[string]any)
	for name, value := range want {
		if !same(parameters[name], value) {
			s.Errorf("parameters.%s is %v, want %v", name, parameters[name], value)
		}
	}
}
