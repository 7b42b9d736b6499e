package osbtest

import (
	"regexp"

	"github.com/kyma-project/keb/libs/osb"
)

var (
	bindingTime = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z$`)
	portRange   = regexp.MustCompile(`^\d{1,5}(-\d{1,5})?$`)
)

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

// bound creates a binding, waits for it and returns its GET response.
func (s *session) bound(id, binding string, edits ...func(map[string]any)) response {
	s.Helper()
	if r := s.must(s.bind(id, binding, edits...), 201, 202); r.status == 202 {
		last := s.wait(bindingPath(id, binding), r.text("operation"))
		s.expectState(last, osb.StateSucceeded)
	}
	return s.must(s.send(request{path: bindingPath(id, binding)}), 200)
}

// removed unbinds and waits for the end.
func (s *session) removed(id, binding string) {
	s.Helper()
	if r := s.must(s.unbind(id, binding), 200, 202); r.status == 202 {
		s.wait(bindingPath(id, binding), r.text("operation"))
	}
}

func (s *session) getBinding(id, binding string) response {
	s.Helper()
	return s.send(request{path: bindingPath(id, binding)})
}

// bindAtOnce sends a bind request that does not accept an asynchronous answer.
func (s *session) bindAtOnce(id, binding, plan string) response {
	s.Helper()
	body := map[string]any{"service_id": s.cfg.Fixtures.ServiceID, "plan_id": plan}
	return s.send(request{method: put, path: bindingPath(id, binding), body: body})
}

// unbindAtOnce sends an unbind request that does not accept an asynchronous answer.
func (s *session) unbindAtOnce(id, binding string) response {
	s.Helper()
	return s.send(request{method: del, path: bindingPath(id, binding), query: s.ids()})
}

// withInstance creates an instance, and returns it with a new binding id.
func (s *session) withInstance() (id, binding string) {
	s.Helper()
	id, _ = s.provisioned()
	return id, uuid()
}

// withInstanceOf is like withInstance with another plan.
func (s *session) withInstanceOf(plan string) (id, binding string) {
	s.Helper()
	id, _ = s.provisioned(func(body map[string]any) {
		body["plan_id"] = plan
		if s.cfg.Parameters != nil {
			body["parameters"] = s.cfg.Parameters(plan)
		}
	})
	return id, uuid()
}

func ofPlan(plan string) func(map[string]any) { return set("plan_id", plan) }

func bindingCases() []Case {
	needs := func(more ...string) []string { return append([]string{"Bindings"}, more...) }
	return []Case{
		{ID: "B01", Name: "a plan that binds at once", Needs: needs("PlanBindsAtOnce"), run: func(s *session) {
			plan := s.cfg.Fixtures.PlanBindsAtOnce
			id, binding := s.withInstanceOf(plan)
			s.expectCredentials(s.expect(s.bindAtOnce(id, binding, plan), 201))
		}},
		{ID: "B02", Name: "the same again", Needs: needs(), run: func(s *session) {
			id, binding := s.withInstance()
			first := s.bound(id, binding)
			again := s.expect(s.bind(id, binding), 200)
			s.expectEqual("credentials", again.body["credentials"], first.body["credentials"])
		}},
		{ID: "B03", Name: "other parameters", Needs: needs("ChangedBindingParameters"), run: func(s *session) {
			id, binding := s.withInstance()
			s.bound(id, binding)
			s.expect(s.bind(id, binding, set("parameters", s.cfg.Fixtures.ChangedBindingParameters)), 409)
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
			s.expectCredentials(s.bound(id, binding))
		}},
		{ID: "B12", Name: "an unknown binding", Needs: needs(), run: func(s *session) {
			id, binding := s.withInstance()
			s.expect(s.send(request{path: bindingPath(id, binding)}), 404)
		}},
		{ID: "B14", Name: "the last operation of an unknown binding", Needs: needs(), run: func(s *session) {
			id, binding := s.withInstance()
			s.expect(s.send(request{path: bindingPath(id, binding) + "/last_operation"}), 404)
		}},
		{ID: "B15", Name: "the last operation after an unbind", Needs: needs(), run: func(s *session) {
			id, binding := s.withInstance()
			s.bound(id, binding)
			s.removed(id, binding)
			if r := s.expect(s.send(request{path: bindingPath(id, binding) + "/last_operation"}), 200, 410); r.status == 200 {
				s.expectState(r, osb.StateSucceeded)
			}
		}},
		{ID: "B16", Name: "unbinding without ids", Needs: needs(), run: func(s *session) {
			id, binding := s.withInstance()
			for _, name := range []string{"service_id", "plan_id"} {
				s.expect(s.send(request{method: del, path: bindingPath(id, binding), query: s.ids(name, "")}), 400)
			}
		}},
		{ID: "B17", Name: "unbinding at once", Needs: needs("PlanBindsAtOnce"), run: func(s *session) {
			plan := s.cfg.Fixtures.PlanBindsAtOnce
			id, binding := s.withInstanceOf(plan)
			s.must(s.bindAtOnce(id, binding, plan), 201)
			r := s.expect(s.unbindAtOnce(id, binding), 200)
			s.expectEqual("the body", len(r.body), 0)
			s.expect(s.getBinding(id, binding), 404)
		}},
		{ID: "B19", Name: "unbinding again", Needs: needs(), run: func(s *session) {
			id, binding := s.withInstance()
			s.bound(id, binding)
			s.removed(id, binding)
			s.expect(s.unbind(id, binding), 410)
		}},
		{ID: "B21", Name: "while the instance is provisioned", Needs: needs("Hold"), run: func(s *session) {
			id, _, _ := s.running()
			s.expectCode(s.bind(id, uuid()), 422, osb.CodeConcurrencyError)
		}},
		{ID: "B22", Name: "over the allowed number", Needs: needs("BindingLimit"), run: func(s *session) {
			id, first := s.withInstance()
			s.bound(id, first)
			for range s.cfg.Fixtures.BindingLimit - 1 {
				s.bound(id, uuid())
			}
			s.expect(s.bind(id, uuid()), 422)
			s.expect(s.bind(id, first), 200)
			s.removed(id, first)
			s.expect(s.bind(id, uuid()), 201, 202)
		}},
		{ID: "B23", Name: "parameters break the schema", Needs: needs("RejectedBindingParameters"), run: func(s *session) {
			id, binding := s.withInstance()
			s.expect(s.bind(id, binding, set("parameters", s.cfg.Fixtures.RejectedBindingParameters)), 400)
		}},
		{ID: "B24", Name: "a plan that needs an application", Needs: needs("PlanNeedsApp"), run: func(s *session) {
			plan := s.cfg.Fixtures.PlanNeedsApp
			id, binding := s.withInstanceOf(plan)
			s.expectCode(s.bind(id, binding, ofPlan(plan)), 422, osb.CodeRequiresApp)
			s.expect(s.bind(id, binding, ofPlan(plan), set("bind_resource", map[string]any{"app_guid": uuid()})), 201, 202)
		}},
		{ID: "B25", Name: "times are well-formed", Needs: needs(), run: func(s *session) {
			id, binding := s.withInstance()
			metadata, _ := s.bound(id, binding).body["metadata"].(map[string]any)
			for name, value := range metadata {
				if text, _ := value.(string); !bindingTime.MatchString(text) {
					s.Errorf("metadata.%s is %v", name, value)
				}
			}
			expires, _ := metadata["expires_at"].(string)
			if renew, _ := metadata["renew_before"].(string); expires != "" && renew > expires {
				s.Errorf("renew_before %s is after expires_at %s", renew, expires)
			}
		}},
		{ID: "B26", Name: "an expired binding", Needs: needs("ExpireBinding", "CleanBindings"), run: func(s *session) {
			id, binding := s.withInstance()
			s.bound(id, binding)
			s.expireBinding(id, binding)
			s.expect(s.getBinding(id, binding), 404)
			if err := s.cfg.Hooks.CleanBindings(s.Context()); err != nil {
				s.Fatalf("hook: %v", err)
			}
			s.expect(s.unbind(id, binding), 410)
			s.expect(s.bind(id, binding), 201, 202)
		}},
		{ID: "B32", Name: "the same id under another instance", Needs: needs(), run: func(s *session) {
			id, binding := s.withInstance()
			other, _ := s.provisioned()
			s.bound(id, binding)
			s.expect(s.send(request{path: bindingPath(other, binding)}), 404)
		}},
	}
}

func (s *session) expectCredentials(r response) {
	s.Helper()
	if credentials, _ := r.body["credentials"].(map[string]any); len(credentials) == 0 {
		s.Errorf("%s: status %d without credentials", r.what, r.status)
	}
}

func (s *session) expireBinding(id, binding string) {
	s.Helper()
	if err := s.cfg.Hooks.ExpireBinding(s.Context(), id, binding); err != nil {
		s.Fatalf("hook: %v", err)
	}
}
