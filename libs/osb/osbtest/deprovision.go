package osbtest

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/kyma-project/keb/libs/osb"
)

// same compares a decoded JSON value with a Go value.
func same(a, b any) bool {
	rawA, errA := json.Marshal(a)
	rawB, errB := json.Marshal(b)
	return errA == nil && errB == nil && osb.SameJSON(rawA, rawB)
}

func deprovisionCases() []Case {
	return []Case{
		{ID: "D01", Name: "synchronously", run: func(s *session) {
			id, _ := s.provisioned()
			s.expectCode(s.send(request{method: del, path: instancePath(id), query: s.ids()}), 422, osb.CodeAsyncRequired)
			s.expect(s.get(id), 200)
		}},
		{ID: "D02", Name: "without ids", run: func(s *session) {
			id, _ := s.provisioned()
			for _, empty := range [][]string{{"service_id", ""}, {"plan_id", ""}, {"service_id", "", "plan_id", ""}} {
				query := s.ids(append(empty, "accepts_incomplete", "true")...)
				s.expect(s.send(request{method: del, path: instancePath(id), query: query}), 400)
				for i := 0; i < len(empty); i += 2 {
					query.Del(empty[i])
				}
				s.expect(s.send(request{method: del, path: instancePath(id), query: query}), 400)
			}
			s.expect(s.get(id), 200)
		}},
		{ID: "D03", Name: "accepted", run: func(s *session) {
			id, _ := s.provisioned()
			if s.must(s.delete(id), 202).text("operation") == "" {
				s.Errorf("no operation")
			}
		}},
		{ID: "D04", Name: "again while running", Needs: []string{"Hold"}, run: func(s *session) {
			id, _ := s.provisioned()
			s.use(s.cfg.Hooks.Hold)
			s.expectSameOperation(s.delete(id), s.must(s.delete(id), 202))
		}},
		{ID: "D05", Name: "again after success", run: func(s *session) {
			id, _ := s.provisioned()
			s.deprovisioned(id)
			if r := s.expect(s.delete(id), http.StatusGone); !osb.SameJSON(r.raw, []byte("{}")) || len(r.raw) == 0 {
				s.Errorf("the body is %q, want {}", r.raw)
			}
		}},
		{ID: "D06", Name: "an unknown instance", run: func(s *session) { s.expect(s.delete(uuid()), 410) }},
		{ID: "D07", Name: "while provisioning", Needs: []string{"Hold"}, run: func(s *session) {
			id, provisioning, release := s.running()
			accepted := s.must(s.delete(id), 202)
			if accepted.text("operation") == provisioning.text("operation") {
				s.Errorf("the operation is that of the provisioning")
			}
			release()
			s.ended(id, accepted, osb.StateSucceeded)
			s.expectState(s.last(id, ""), osb.StateSucceeded)
			s.expectState(s.wait(instancePath(id), provisioning.text("operation")), osb.StateFailed)
			s.expectNoResources(id)
		}},
		{ID: "D08", Name: "while an update runs", Needs: []string{"Updates", "Hold", "ChangedParameters"}, run: func(s *session) {
			id, _ := s.provisioned()
			release := s.use(s.cfg.Hooks.Hold)
			update := s.must(s.patch(id, set("parameters", s.cfg.Fixtures.ChangedParameters)), 202)
			accepted := s.must(s.delete(id), 202)
			if accepted.text("operation") == update.text("operation") {
				s.Errorf("the operation is that of the update")
			}
			release()
			s.ended(id, accepted, osb.StateSucceeded)
			s.expectState(s.last(id, ""), osb.StateSucceeded)
			s.expectState(s.wait(instancePath(id), update.text("operation")), osb.StateFailed)
			s.expectNoResources(id)
		}},
		{ID: "D09", Name: "after a failed provisioning", Needs: []string{"Fail", "Resources"}, run: func(s *session) {
			id := s.failed()
			s.deprovisioned(id)
			s.expectNoResources(id)
		}},
		{ID: "D10", Name: "after a failed deprovisioning", Needs: []string{"FailDeprovision", "StepRuns"}, run: func(s *session) {
			id, _ := s.provisioned()
			restore := s.use(s.cfg.Hooks.FailDeprovision)
			first := s.delete(id)
			s.ended(id, first, osb.StateFailed)
			restore()
			if again := s.deprovisioned(id); again.text("operation") == first.text("operation") {
				s.Errorf("the operation is the failed one")
			}
			runs, err := s.cfg.Hooks.StepRuns(s.Context(), id)
			if err != nil || len(runs) == 0 {
				s.Errorf("hook: %v, %v", runs, err)
			}
			for step, count := range runs {
				if count != 1 {
					s.Errorf("step %s succeeded %d times", step, count)
				}
			}
		}},
		{ID: "D11", Name: "ids that are not in the catalog", run: func(s *session) {
			id, _ := s.provisioned()
			for _, name := range []string{"service_id", "plan_id"} {
				query := s.ids("accepts_incomplete", "true", name, "unknown")
				s.expect(s.send(request{method: del, path: instancePath(id), query: query}), 400)
			}
			s.expect(s.get(id), 200)
		}},
		{ID: "D12", Name: "another plan of the offering", Needs: []string{"PlanB", "Logs"}, run: func(s *session) {
			id, _ := s.provisioned()
			before, err := s.cfg.Hooks.Logs(s.Context())
			if err != nil {
				s.Fatalf("hook: %v", err)
			}
			query := s.ids("accepts_incomplete", "true", "plan_id", s.cfg.Fixtures.PlanB)
			s.expect(s.send(request{method: del, path: instancePath(id), query: query}), 202)
			after, err := s.cfg.Hooks.Logs(s.Context())
			if err != nil || len(after) < len(before) {
				s.Fatalf("hook: %v", err)
			}
			s.expectContains("the log", after[len(before):], "WARN", id)
		}},
		{ID: "D13", Name: "with bindings", Needs: []string{"Bindings"}, run: func(s *session) {
			id, _ := s.provisioned()
			binding := uuid()
			s.bound(id, binding)
			s.deprovisioned(id)
			s.expect(s.send(request{path: bindingPath(id, binding)}), 404)
			s.expect(s.unbind(id, binding), 410)
		}},
		{ID: "D14", Name: "fifty in parallel", Needs: []string{"Hold"}, run: func(s *session) {
			id, _ := s.provisioned()
			s.use(s.cfg.Hooks.Hold)
			requests := slices.Repeat([]request{
				{method: del, path: instancePath(id), query: s.ids("accepts_incomplete", "true")},
			}, s.cfg.rounds(50))
			answers := s.parallel(requests...)
			for _, r := range answers {
				s.expectSameOperation(r, answers[0])
			}
		}},
		{ID: "D15", Name: "a clean-up step gives up", Needs: []string{"Exhaust", "NotCompleted", "Sweep"}, run: func(s *session) {
			id, _ := s.provisioned()
			restore := s.use(s.cfg.Hooks.Exhaust)
			s.deprovisioned(id)
			steps, err := s.cfg.Hooks.NotCompleted(s.Context(), id)
			if err != nil || len(steps) == 0 {
				s.Errorf("not completed: %v, %v", steps, err)
			}
			restore()
			if err := s.cfg.Hooks.Sweep(s.Context()); err != nil {
				s.Fatalf("hook: %v", err)
			}
			s.eventually("the sweep has completed the steps", func() bool {
				steps, err := s.cfg.Hooks.NotCompleted(s.Context(), id)
				return err == nil && len(steps) == 0
			})
		}},
	}
}

// expectNoResources checks that nothing is left of an instance, if the harness supports it.
func (s *session) expectNoResources(id string) {
	s.Helper()
	if s.cfg.Hooks.Resources == nil {
		return
	}
	if n, err := s.cfg.Hooks.Resources(s.Context(), id); err != nil || n != 0 {
		s.Errorf("%d resources are left, %v", n, err)
	}
}
