package osbtest

// rotate requests a binding that replaces another one.
func (s *session) rotate(id, binding, predecessor string, edits ...func(map[string]any)) response {
	s.Helper()
	return s.bind(id, binding, append(edits, set("predecessor_binding_id", predecessor))...)
}

func rotationCases() []Case {
	needs := func(more ...string) []string { return append([]string{"Bindings"}, more...) }
	return []Case{
		{ID: "B27", Name: "rotation", Needs: needs("Rotation", "ChangedBindingParameters"), run: func(s *session) {
			id, first := s.withInstance()
			before := s.bound(id, first, set("parameters", s.cfg.Fixtures.ChangedBindingParameters))
			second := uuid()
			if r := s.must(s.rotate(id, second, first), 201, 202); r.status == 202 {
				s.wait(bindingPath(id, second), r.text("operation"))
			}
			after := s.must(s.getBinding(id, second), 200)
			s.expectCredentials(after)
			s.expectEqual("the parameters", after.body["parameters"], before.body["parameters"])
			s.expectEqual("the old credentials", s.must(s.getBinding(id, first), 200).body["credentials"], before.body["credentials"])
			s.removed(id, first)
			s.expect(s.getBinding(id, second), 200)
		}},
		{ID: "B28", Name: "rotation that says nothing else", Needs: needs("Rotation"), run: func(s *session) {
			id, first := s.withInstance()
			s.bound(id, first)
			s.expect(s.rotate(id, uuid(), first, drop("service_id"), drop("plan_id")), 201, 202)
		}},
		{ID: "B29", Name: "rotation with a plan that has none", Needs: needs("PlanNotRotatable"), run: func(s *session) {
			plan := s.cfg.Fixtures.PlanNotRotatable
			id, first := s.withInstanceOf(plan)
			s.bound(id, first, ofPlan(plan))
			s.expect(s.rotate(id, uuid(), first, ofPlan(plan)), 400)
			s.expect(s.rotate(id, uuid(), first, drop("service_id"), drop("plan_id")), 400)
		}},
		{ID: "B30", Name: "rotation of what is not there", Needs: needs("Rotation", "ExpireBinding"), run: func(s *session) {
			id, first := s.withInstance()
			other, _ := s.provisioned()
			s.bound(id, first)
			s.expect(s.rotate(id, uuid(), uuid()), 400)
			s.expect(s.rotate(other, uuid(), first), 400)
			s.expireBinding(id, first)
			s.expect(s.rotate(id, uuid(), first), 400)
		}},
		{ID: "B31", Name: "endpoints are well-formed", Needs: needs(), run: func(s *session) {
			id, binding := s.withInstance()
			endpoints, present := s.bound(id, binding).body["endpoints"]
			list, ok := endpoints.([]any)
			if present && !ok {
				s.Errorf("endpoints are %v, want an array", endpoints)
			}
			for _, e := range list {
				s.expectEndpoint(e)
			}
		}},
	}
}

func (s *session) expectEndpoint(e any) {
	s.Helper()
	endpoint, _ := e.(map[string]any)
	if host, _ := endpoint["host"].(string); host == "" {
		s.Errorf("endpoint %v has no host", e)
	}
	ports, _ := endpoint["ports"].([]any)
	for _, p := range ports {
		if port, _ := p.(string); !portRange.MatchString(port) {
			s.Errorf("endpoint %v has the port %v, want a string with a port or a range", e, p)
		}
	}
	if len(ports) == 0 {
		s.Errorf("endpoint %v has no ports", e)
	}
	switch endpoint["protocol"] {
	case nil, "tcp", "udp", "all":
	default:
		s.Errorf("endpoint %v has the protocol %v", e, endpoint["protocol"])
	}
}
