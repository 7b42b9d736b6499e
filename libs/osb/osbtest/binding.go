package osbtest

import (
	"regexp"

	"github.com/kyma-project/keb/libs/osb"
)

var bindingTime = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z$`)

func (s *session) bind(id, binding string, edits ...func(map[string]any)) response {
	s.Helper()
	body := map[string]any{"service_id": s.cfg.Fixtures.ServiceID, "plan_id": s.cfg.Fixtures.PlanA}
	for _, edit := range edits {
		edit(body)
	}
	return s.send(request{method: put, path: bindingPath(id, binding), query: incomplete, body: body})
}

func (s *session) unbind(id, binding string) response {
	s.Helper()
	return s.send(request{method: del, path: bindingPath(id, binding), query: s.ids("accepts_incomplete", "true")})
}

// bound makes a binding, waits for it and returns it as GET tells.
func (s *session) bound(id, binding string) response {
	s.Helper()
	if r := s.must(s.bind(id, binding), 201, 202); r.status == 202 {
		last := s.wait(bindingPath(id, binding), r.text("operation"))
		s.expectState(last, osb.StateSucceeded)
	}
	return s.must(s.send(request{path: bindingPath(id, binding)}), 200)
}

func bindingCases() []Case {
	needs := func(more ...string) []string { return append([]string{"Bindings"}, more...) }
	return []Case{
		{ID: "B02", Name: "the same again", Needs: needs(), run: func(s *session) {
			id, binding := s.withInstance()
			first := s.bound(id, binding)
			again := s.expect(s.bind(id, binding), 200)
			s.expectEqual("credentials", again.body["credentials"], first.body["credentials"])
		}},
		{ID: "B03", Name: "other parameters", Needs: needs(), run: func(s *session) {
			id, binding := s.withInstance()
			s.bound(id, binding)
			s.expect(s.bind(id, binding, set("parameters", map[string]any{"other": true})), 409, 400)
		}},
		{ID: "B04", Name: "without ids", Needs: needs(), run: func(s *session) {
			id, binding := s.withInstance()
			s.expect(s.bind(id, binding, drop("service_id")), 400)
			s.expect(s.bind(id, binding, drop("plan_id")), 400)
		}},
		{ID: "B05", Name: "a plan that is not bindable", Needs: needs("PlanUnbindable"), run: func(s *session) {
			id, binding := s.withInstance()
			s.expect(s.bind(id, binding, set("plan_id", s.cfg.Fixtures.PlanUnbindable)), 400)
		}},
		{ID: "B06", Name: "an unknown instance", Needs: needs(), run: func(s *session) { s.expect(s.bind(uuid(), uuid()), 404) }},
		{ID: "B11", Name: "at once after success", Needs: needs(), run: func(s *session) {
			id, binding := s.withInstance()
			if _, ok := s.bound(id, binding).body["credentials"].(map[string]any); !ok {
				s.Errorf("no credentials")
			}
		}},
		{ID: "B12", Name: "an unknown binding", Needs: needs(), run: func(s *session) {
			id, binding := s.withInstance()
			s.expect(s.send(request{path: bindingPath(id, binding)}), 404)
		}},
		{ID: "B14", Name: "the last operation of an unknown binding", Needs: needs(), run: func(s *session) {
			id, binding := s.withInstance()
			s.expect(s.send(request{path: bindingPath(id, binding) + "/last_operation"}), 404)
		}},
		{ID: "B16", Name: "unbinding without ids", Needs: needs(), run: func(s *session) {
			id, binding := s.withInstance()
			for _, name := range []string{"service_id", "plan_id"} {
				s.expect(s.send(request{method: del, path: bindingPath(id, binding), query: s.ids(name, "")}), 400)
			}
		}},
		{ID: "B19", Name: "unbinding again", Needs: needs(), run: func(s *session) {
			id, binding := s.withInstance()
			s.bound(id, binding)
			if r := s.must(s.unbind(id, binding), 200, 202); r.status == 202 {
				s.wait(bindingPath(id, binding), r.text("operation"))
			}
			s.expect(s.unbind(id, binding), 410)
		}},
		{ID: "B21", Name: "while the instance is provisioned", Needs: needs("Hold"), run: func(s *session) {
			id, _, _ := s.running()
			s.expectCode(s.bind(id, uuid()), 422, osb.CodeConcurrencyError)
		}},
		{ID: "B23", Name: "parameters break the schema", Needs: needs("RejectedBindingParameters"), run: func(s *session) {
			id, binding := s.withInstance()
			s.expect(s.bind(id, binding, set("parameters", s.cfg.Fixtures.RejectedBindingParameters)), 400)
		}},
		{ID: "B25", Name: "times are well-formed", Needs: needs(), run: func(s *session) {
			id, binding := s.withInstance()
			metadata, _ := s.bound(id, binding).body["metadata"].(map[string]any)
			for name, value := range metadata {
				if text, _ := value.(string); !bindingTime.MatchString(text) {
					s.Errorf("metadata.%s is %v", name, value)
				}
			}
		}},
		{ID: "B32", Name: "the same id under another instance", Needs: needs(), run: func(s *session) {
			id, binding := s.withInstance()
			other, _ := s.provisioned()
			s.bound(id, binding)
			s.expect(s.send(request{path: bindingPath(other, binding)}), 404)
		}},
	}
}

// withInstance returns an instance that is there, and a fresh binding id.
func (s *session) withInstance() (id, binding string) {
	s.Helper()
	id, _ = s.provisioned()
	return id, uuid()
}
