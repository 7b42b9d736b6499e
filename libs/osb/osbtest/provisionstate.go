package osbtest

import (
	"sync"

	"github.com/kyma-project/keb/libs/osb"
)

// running provisions an instance that stays in progress until release is called.
func (s *session) running() (id string, accepted response, release func()) {
	s.Helper()
	release = s.use(s.cfg.Hooks.Hold)
	id = s.newID()
	return id, s.must(s.put(id), 202), release
}

// parallel sends concurrent requests.
func (s *session) parallel(requests ...request) []response {
	s.Helper()
	out, errs := make([]response, len(requests)), make([]error, len(requests))
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i, r := range requests {
		wg.Go(func() {
			<-start
			out[i], errs[i] = s.try(r)
		})
	}
	close(start)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			s.Fatalf("parallel requests: %v", err)
		}
	}
	return out
}

func (s *session) expectSameOperation(r, accepted response) {
	s.Helper()
	s.expect(r, 202)
	s.expectEqual(r.what+": operation", r.text("operation"), accepted.text("operation"))
}

func provisionStateCases() []Case {
	return []Case{
		{ID: "P04", Name: "the same bytes, while running", Needs: []string{"Hold"}, run: func(s *session) {
			id, accepted, _ := s.running()
			s.expectSameOperation(s.put(id), accepted)
		}},
		{ID: "P05", Name: "same meaning, other key order, while running", Needs: []string{"Hold"}, run: func(s *session) {
			id, accepted, _ := s.running()
			s.expectSameOperation(s.send(request{
				method: put, path: instancePath(id), query: incomplete, raw: reordered(s.order(s.cfg.Fixtures.PlanA)),
			}), accepted)
		}},
		{ID: "P06", Name: "the same, after success", run: func(s *session) {
			id, accepted := s.provisioned()
			r := s.expect(s.put(id), 200)
			if _, present := r.body["operation"]; present {
				s.Errorf("the answer has an operation: %s", r.raw)
			}
			s.expectEqual("dashboard_url", r.text("dashboard_url"), accepted.text("dashboard_url"))
		}},
		{ID: "P07", Name: "another plan, while running", Needs: []string{"Hold", "PlanB"}, run: func(s *session) {
			id, _, _ := s.running()
			s.expect(s.put(id, set("plan_id", s.cfg.Fixtures.PlanB)), 409)
		}},
		{ID: "P08", Name: "other parameters", Needs: []string{"Hold", "ChangedParameters"}, run: func(s *session) {
			id, accepted, release := s.running()
			changed := setIn("parameters", s.cfg.Fixtures.ChangedParameters)
			s.expect(s.put(id, changed), 409)
			release()
			s.ended(id, accepted, osb.StateSucceeded)
			s.expect(s.put(id, changed), 409)
		}},
		{ID: "P09", Name: "another account", Needs: []string{"AccountMembers"}, run: func(s *session) {
			id, _ := s.provisioned()
			for _, name := range s.cfg.Fixtures.AccountMembers {
				s.expect(s.put(id, setIn("context", map[string]any{name: "another"})), 409)
			}
			s.expect(s.put(id, set("organization_guid", "another")), 409)
			s.expect(s.put(id, set("space_guid", "another")), 409)
		}},
		{ID: "P10", Name: "display fields do not count", Needs: []string{"Hold", "DisplayContext"}, run: func(s *session) {
			id, accepted, release := s.running()
			display := setIn("context", s.cfg.Fixtures.DisplayContext)
			s.expectSameOperation(s.put(id, display), accepted)
			release()
			s.ended(id, accepted, osb.StateSucceeded)
			s.expect(s.put(id, display), 200)
		}},
		{ID: "P23", Name: "two equal requests in parallel", Needs: []string{"Hold", "Counts"}, run: func(s *session) {
			s.use(s.cfg.Hooks.Hold)
			for range s.cfg.rounds(50) {
				id := s.newID()
				r := request{method: put, path: instancePath(id), query: incomplete, body: s.order(s.cfg.Fixtures.PlanA)}
				answers := s.parallel(r, r)
				s.must(answers[0], 202)
				s.expectSameOperation(answers[1], answers[0])
				counts, err := s.cfg.Hooks.Counts(s.Context(), id)
				if err != nil || counts != (Counts{Operations: 1, Requests: 1}) {
					s.Errorf("there are %+v, %v, want one operation and one request", counts, err)
				}
			}
		}},
		{ID: "P24", Name: "two plans in parallel", Needs: []string{"Hold", "PlanB"}, run: func(s *session) {
			s.use(s.cfg.Hooks.Hold)
			for range s.cfg.rounds(20) {
				path := instancePath(s.newID())
				answers := s.parallel(
					request{method: put, path: path, query: incomplete, body: s.order(s.cfg.Fixtures.PlanA)},
					request{method: put, path: path, query: incomplete, body: s.order(s.cfg.Fixtures.PlanB)})
				s.expectEqual("the sum of the statuses", answers[0].status+answers[1].status, 202+409)
			}
		}},
		{ID: "P25", Name: "while a deprovisioning runs", Needs: []string{"Hold"}, run: func(s *session) {
			id, _ := s.provisioned()
			s.use(s.cfg.Hooks.Hold)
			s.must(s.delete(id), 202)
			s.expectCode(s.put(id), 422, osb.CodeConcurrencyError)
		}},
		{ID: "P26", Name: "after a failed provisioning", Needs: []string{"Fail"}, run: func(s *session) {
			id := s.failed()
			s.expectContains("description", s.expect(s.put(id), 409).text("description"), "deprovision")
		}},
		{ID: "P27", Name: "after a deprovisioning", run: func(s *session) {
			id, first := s.provisioned()
			s.deprovisioned(id)
			again := s.must(s.put(id), 202)
			if again.text("operation") == first.text("operation") {
				s.Errorf("the operation is the old one")
			}
			s.ended(id, again, osb.StateSucceeded)
		}},
		{ID: "P28", Name: "while a dependency is unavailable", Needs: []string{"Outage"}, run: func(s *session) {
			restore := s.use(s.cfg.Hooks.Outage)
			id := s.newID()
			s.expect(s.put(id), 503)
			restore()
			s.expect(s.recovered(id), 410, 202)
		}},
	}
}

// failed returns an instance whose provisioning failed.
func (s *session) failed() string {
	s.Helper()
	restore := s.use(s.cfg.Hooks.Fail)
	id := s.newID()
	s.ended(id, s.put(id), osb.StateFailed)
	restore()
	return id
}

// recovered deletes an instance once the broker is available again.
func (s *session) recovered(id string) (r response) {
	s.Helper()
	s.eventually("the broker has recovered", func() bool {
		r = s.delete(id)
		return r.status != 503
	})
	return r
}
