package osbtest

import "github.com/kyma-project/keb/libs/osb"

// binding returns an instance of the plan with asynchronous bindings. Its binding is in progress until release is called.
func (s *session) binding() (id, binding string, accepted response, release func()) {
	s.Helper()
	id, binding = s.withInstanceOf(s.cfg.Fixtures.PlanBindsLater)
	release = s.use(s.cfg.Hooks.Hold)
	return id, binding, s.must(s.bindLater(id, binding), 202), release
}

func (s *session) bindLater(id, binding string) response {
	s.Helper()
	return s.bind(id, binding, ofPlan(s.cfg.Fixtures.PlanBindsLater))
}

// lateBindingCases are the cases of asynchronous bindings.
func lateBindingCases() []Case {
	needs := func(more ...string) []string { return append([]string{"Bindings", "PlanBindsLater"}, more...) }
	return []Case{
		{ID: "B07", Name: "an asynchronous plan, and a platform that cannot wait", Needs: needs(), run: func(s *session) {
			plan := s.cfg.Fixtures.PlanBindsLater
			id, binding := s.withInstanceOf(plan)
			s.expectCode(s.bindAtOnce(id, binding, plan), 422, osb.CodeAsyncRequired)
			s.expect(s.unbind(id, binding), 410)
		}},
		{ID: "B08", Name: "asynchronously", Needs: needs("Hold"), run: func(s *session) {
			_, _, accepted, _ := s.binding()
			if operation := accepted.text("operation"); operation == "" || len(operation) > 10_000 {
				s.Errorf("operation %q", operation)
			}
			if _, present := accepted.body["credentials"]; present {
				s.Errorf("credentials before the binding is made")
			}
		}},
		{ID: "B09", Name: "the same, while running", Needs: needs("Hold"), run: func(s *session) {
			id, binding, accepted, _ := s.binding()
			s.expectSameOperation(s.bindLater(id, binding), accepted)
		}},
		{ID: "B10", Name: "reading it while it is made", Needs: needs("Hold"), run: func(s *session) {
			id, binding, accepted, release := s.binding()
			s.expect(s.getBinding(id, binding), 404)
			release()
			s.expectState(s.wait(bindingPath(id, binding), accepted.text("operation")), osb.StateSucceeded)
			s.expectCredentials(s.expect(s.getBinding(id, binding), 200))
		}},
		{ID: "B13", Name: "the last operation while running", Needs: needs("Hold"), run: func(s *session) {
			id, binding, _, _ := s.binding()
			r := s.expect(s.send(request{path: bindingPath(id, binding) + "/last_operation"}), 200)
			s.expectState(r, osb.StateInProgress)
			s.expectRetryAfter(r)
		}},
		{ID: "B18", Name: "unbinding, and a platform that cannot wait", Needs: needs(), run: func(s *session) {
			id, binding := s.withInstanceOf(s.cfg.Fixtures.PlanBindsLater)
			r := s.must(s.bindLater(id, binding), 202)
			s.expectState(s.wait(bindingPath(id, binding), r.text("operation")), osb.StateSucceeded)
			s.expectCode(s.unbindAtOnce(id, binding), 422, osb.CodeAsyncRequired)
			s.expect(s.getBinding(id, binding), 200)
		}},
		{ID: "B20", Name: "unbinding while it is made", Needs: needs("Hold"), run: func(s *session) {
			id, binding, accepted, release := s.binding()
			r := s.must(s.unbind(id, binding), 202)
			release()
			s.wait(bindingPath(id, binding), r.text("operation"))
			s.expect(s.getBinding(id, binding), 404)
			s.expect(s.unbind(id, binding), 410)
			last := s.wait(bindingPath(id, binding), accepted.text("operation"))
			if last.status == 200 && last.text("state") == string(osb.StateSucceeded) {
				s.Errorf("the halted create is told as succeeded")
			}
		}},
	}
}
