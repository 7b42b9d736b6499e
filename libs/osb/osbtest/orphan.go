package osbtest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/kyma-project/keb/libs/osb"
)

// mitigated removes an instance whose state the platform does not know, and checks that nothing is left.
func (s *session) mitigated(id string, answer response) {
	s.Helper()
	if s.must(answer, 202, 410); answer.status == 202 {
		s.ended(id, answer, osb.StateSucceeded)
	}
	s.expect(s.delete(id), 410)
	s.expect(s.get(id), 404)
	if last := s.last(id, ""); last.text("state") == string(osb.StateInProgress) {
		s.Errorf("an operation is still in progress: %s", last.raw)
	}
	s.expectNoResources(id)
}

func orphanCases() []Case {
	return []Case{
		{ID: "O01", Name: "the platform hangs up", Needs: []string{"Resources"}, run: func(s *session) {
			for range s.cfg.rounds(5) {
				id := s.newID()
				s.hangUp(id)
				s.settled(id)
				s.mitigated(id, s.delete(id))
			}
		}},
		{ID: "O02", Name: "provisioning answered 5xx", Needs: []string{"Outage", "Resources"}, run: func(s *session) {
			restore := s.use(s.cfg.Hooks.Outage)
			id := s.newID()
			if r := s.put(id); r.status < 500 {
				s.Errorf("%s: status %d, want a server error", r.what, r.status)
			}
			restore()
			s.mitigated(id, s.recovered(id))
		}},
		{ID: "O03", Name: "provisioning failed", Needs: []string{"Fail", "Resources"}, run: func(s *session) {
			id := s.failed()
			accepted := s.must(s.delete(id), 202)
			s.mitigated(id, accepted)
		}},
		{ID: "O04", Name: "deleted until it is gone", run: func(s *session) {
			id, _ := s.provisioned()
			s.eventually("the instance is gone", func() bool {
				r := s.expect(s.delete(id), 200, 202, 410, 422)
				if r.status == 422 {
					s.expectCode(r, 422, osb.CodeConcurrencyError)
				}
				return r.status == 410
			})
		}},
		{ID: "O05", Name: "unbinding what never came about", Needs: []string{"Bindings"}, run: func(s *session) {
			id, _ := s.provisioned()
			binding := uuid()
			r := s.must(s.unbind(id, binding), 410, 202)
			if r.status == 202 {
				s.wait(bindingPath(id, binding), r.text("operation"))
				s.expect(s.unbind(id, binding), 410)
			}
		}},
		{ID: "O06", Name: "refusals that do not mean clean up", Needs: []string{"Hold"}, run: func(s *session) {
			id, _ := s.provisioned()
			body := s.order(s.cfg.Fixtures.PlanA)
			s.expectCode(s.send(request{method: put, path: instancePath(uuid()), body: body}), 422, osb.CodeAsyncRequired)
			s.expectCode(s.send(request{method: del, path: instancePath(id), query: s.ids()}), 422, osb.CodeAsyncRequired)
			s.use(s.cfg.Hooks.Hold)
			s.must(s.delete(id), 202)
			s.expectCode(s.put(id), 422, osb.CodeConcurrencyError)
		}},
		{ID: "O07", Name: "asynchronous work is answered 202", run: func(s *session) {
			id := s.newID()
			accepted := s.expect(s.put(id), 202)
			s.ended(id, accepted, osb.StateSucceeded)
			s.expect(s.delete(id), 202)
		}},
	}
}

// settled waits until an abandoned request is handled: the instance either exists now, or never will.
func (s *session) settled(id string) {
	s.Helper()
	if workedOff := s.cfg.Hooks.WorkedOff; workedOff != nil {
		if err := workedOff(s.Context(), id); err != nil {
			s.Fatalf("hook: %v", err)
		}
		return
	}
	giveUp := time.Now().Add(settleTime)
	s.eventually("the abandoned request is worked off", func() bool {
		return s.last(id, "").status != 404 || time.Now().After(giveUp)
	})
}

// settleTime is the time in which an abandoned request may still have an effect.
const settleTime = 500 * time.Millisecond

// hangUp sends a provision request and closes the connection without waiting for the answer.
func (s *session) hangUp(id string) {
	s.Helper()
	base, err := url.Parse(s.cfg.BaseURL)
	if err != nil {
		s.Fatalf("base URL: %v", err)
	}
	body, err := json.Marshal(s.order(s.cfg.Fixtures.PlanA))
	if err != nil {
		s.Fatalf("encode the body: %v", err)
	}
	conn, err := new(net.Dialer).DialContext(s.Context(), "tcp", base.Host)
	if err != nil {
		s.Fatalf("connect: %v", err)
	}
	credentials := base64.StdEncoding.EncodeToString([]byte(s.cfg.User + ":" + s.cfg.Password))
	_, err = fmt.Fprintf(conn, "PUT %s%s?accepts_incomplete=true HTTP/1.1\r\nHost: %s\r\n%s: %s\r\nAuthorization: Basic %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", base.Path, instancePath(id), base.Host,
		osb.HeaderVersion, osb.SpecVersion, credentials, len(body), body)
	if err != nil {
		s.Fatalf("send: %v", err)
	}
	if err := conn.Close(); err != nil {
		s.Fatalf("hang up: %v", err)
	}
}
