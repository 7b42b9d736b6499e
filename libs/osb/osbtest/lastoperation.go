package osbtest

import (
	"net/url"
	"strconv"
	"time"

	"github.com/kyma-project/keb/libs/osb"
)

func (s *session) expectState(r response, want osb.State) response {
	s.Helper()
	s.expect(r, 200)
	s.expectEqual(r.what+": state", r.text("state"), string(want))
	return r
}

func (s *session) expectAbsent(r response, names ...string) {
	s.Helper()
	for _, name := range names {
		if value, present := r.body[name]; present {
			s.Errorf("%s: %s is %v, want none", r.what, name, value)
		}
	}
}

// newest checks that a request without an operation returns the newest one.
func newest(query url.Values) func(s *session) {
	return func(s *session) {
		id, provisioning := s.provisioned()
		s.use(s.cfg.Hooks.Hold)
		s.must(s.delete(id), 202)
		s.expectState(s.send(request{path: instancePath(id) + "/last_operation", query: query}), osb.StateInProgress)
		s.expectState(s.last(id, provisioning.text("operation")), osb.StateSucceeded)
	}
}

func lastOperationCases() []Case {
	return []Case{
		{ID: "L01", Name: "while provisioning", Needs: []string{"Hold"}, run: func(s *session) {
			id, accepted, _ := s.running()
			r := s.expectState(s.last(id, accepted.text("operation")), osb.StateInProgress)
			if r.text("description") == "" {
				s.Errorf("no description")
			}
		}},
		{ID: "L02", Name: "when to ask again", Needs: []string{"Hold"}, run: func(s *session) {
			id, accepted, _ := s.running()
			s.expectRetryAfter(s.last(id, accepted.text("operation")))
		}},
		{ID: "L03", Name: "after success", run: func(s *session) {
			id, accepted := s.provisioned()
			r := s.expectState(s.last(id, accepted.text("operation")), osb.StateSucceeded)
			s.expectEqual("Retry-After", r.header.Get("Retry-After"), "")
		}},
		{ID: "L04", Name: "after a failed provisioning", Needs: []string{"Fail"}, run: func(s *session) {
			r := s.expectState(s.last(s.failed(), ""), osb.StateFailed)
			if r.text("description") == "" {
				s.Errorf("no description")
			}
			s.expectAbsent(r, "instance_usable", "update_repeatable")
		}},
		{ID: "L05", Name: "without an operation", Needs: []string{"Hold"}, run: newest(nil)},
		{ID: "L06", Name: "with an empty operation", Needs: []string{"Hold"}, run: newest(url.Values{"operation": {""}})},
		{ID: "L07", Name: "an unknown operation", run: func(s *session) {
			id, _ := s.provisioned()
			for _, operation := range []string{uuid(), "nothing", "\x00", "'"} {
				s.expect(s.last(id, operation), 404)
			}
		}},
		{ID: "L08", Name: "the operation of another instance", run: func(s *session) {
			id, _ := s.provisioned()
			other := s.newID()
			s.expect(s.last(id, s.must(s.put(other), 202).text("operation")), 400)
		}},
		{ID: "L09", Name: "an unknown instance", run: func(s *session) { s.expect(s.last(uuid(), ""), 404) }},
		{ID: "L10", Name: "after a deprovisioning", run: func(s *session) {
			id, _ := s.provisioned()
			accepted := s.deprovisioned(id)
			s.expectState(s.last(id, accepted.text("operation")), osb.StateSucceeded)
		}},
		{ID: "L11", Name: "after the record was purged", Needs: []string{"Purge"}, run: func(s *session) {
			id, _ := s.provisioned()
			accepted := s.deprovisioned(id)
			if err := s.cfg.Hooks.Purge(s.Context(), id); err != nil {
				s.Fatalf("hook: %v", err)
			}
			s.expect(s.last(id, accepted.text("operation")), 410)
		}},
		{ID: "L12", Name: "again and again after the end", run: func(s *session) {
			id, accepted := s.provisioned()
			first := s.last(id, accepted.text("operation"))
			for range 10 {
				s.expectEqual("the answer", string(s.last(id, accepted.text("operation")).raw), string(first.raw))
			}
		}},
		{ID: "L13", Name: "with the right hints", run: func(s *session) {
			id, accepted := s.provisioned()
			query := s.ids("operation", accepted.text("operation"))
			s.expect(s.send(request{path: instancePath(id) + "/last_operation", query: query}), 200)
		}},
		{ID: "L14", Name: "with hints that are not in the catalog", run: func(s *session) {
			id, _ := s.provisioned()
			for _, name := range []string{"service_id", "plan_id"} {
				s.expect(s.send(request{path: instancePath(id) + "/last_operation", query: s.ids(name, "unknown")}), 400)
				s.expect(s.send(request{path: instancePath(id) + "/last_operation", query: url.Values{name: {"unknown"}}}), 400)
			}
		}},
		{ID: "L15", Name: "after a failed update", Needs: []string{"Updates", "Fail", "ChangedParameters"}, run: func(s *session) {
			id, _ := s.provisioned()
			s.use(s.cfg.Hooks.Fail)
			r := s.ended(id, s.patch(id, set("parameters", s.cfg.Fixtures.ChangedParameters)), osb.StateFailed)
			for _, name := range []string{"instance_usable", "update_repeatable"} {
				if _, ok := r.body[name].(bool); !ok {
					s.Errorf("%s is %v, want a boolean", name, r.body[name])
				}
			}
		}},
		{ID: "L16", Name: "after a failed deprovisioning", Needs: []string{"FailDeprovision"}, run: func(s *session) {
			id, _ := s.provisioned()
			s.use(s.cfg.Hooks.FailDeprovision)
			r := s.ended(id, s.delete(id), osb.StateFailed)
			if _, ok := r.body["instance_usable"].(bool); !ok {
				s.Errorf("instance_usable is %v, want a boolean", r.body["instance_usable"])
			}
			s.expectAbsent(r, "update_repeatable")
		}},
		{ID: "L17", Name: "longer than the platform polls", Needs: []string{"Hold", "Expire"}, run: func(s *session) {
			id, accepted, _ := s.running()
			if err := s.cfg.Hooks.Expire(s.Context(), id); err != nil {
				s.Fatalf("hook: %v", err)
			}
			if got := s.wait(instancePath(id), accepted.text("operation")).text("state"); got == string(osb.StateInProgress) {
				s.Errorf("the state is still %q", got)
			}
		}},
		{ID: "L18", Name: "descriptions are not empty", run: func(s *session) {
			id := s.newID()
			accepted := s.must(s.put(id), 202)
			answers := []response{s.last(id, ""), s.wait(instancePath(id), accepted.text("operation"))}
			for _, r := range answers {
				if text, present := r.body["description"]; present && text == "" {
					s.Errorf("%s: the description is empty", r.raw)
				}
			}
		}},
		{ID: "L19", Name: "while a step is tried again", Needs: []string{"Retry"}, run: func(s *session) {
			s.use(s.cfg.Hooks.Retry)
			id := s.newID()
			accepted := s.must(s.put(id), 202)
			r := s.expectState(s.last(id, accepted.text("operation")), osb.StateInProgress)
			if description := r.text("description"); description == "" || contains(description, "http") || contains(description, "127.0.0.1") {
				s.Errorf("the description is %q", description)
			}
		}},
		{ID: "L20", Name: "while the orchestrator is killed", Needs: []string{"KillOrchestrator"}, run: func(s *session) {
			id := s.newID()
			accepted := s.must(s.put(id), 202)
			if err := s.cfg.Hooks.KillOrchestrator(s.Context()); err != nil {
				s.Fatalf("hook: %v", err)
			}
			s.expect(s.last(id, accepted.text("operation")), 200)
			s.ended(id, accepted, osb.StateSucceeded)
		}},
	}
}

func (s *session) expectRetryAfter(r response) {
	s.Helper()
	header := r.header.Get("Retry-After")
	seconds, err := strconv.Atoi(header)
	wait := time.Duration(seconds) * time.Second
	if err != nil || wait < s.cfg.RetryAfterMin || wait > s.cfg.RetryAfterMax {
		s.Errorf("Retry-After: %q, want seconds from %s to %s", header, s.cfg.RetryAfterMin, s.cfg.RetryAfterMax)
	}
}
