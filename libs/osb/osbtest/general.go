package osbtest

import (
	"encoding/base64"
	"maps"
	"net/http"

	"github.com/kyma-project/keb/libs/osb"
)

const (
	put   = http.MethodPut
	patch = http.MethodPatch
	del   = http.MethodDelete
)

// allRoutes returns every route except the catalog, with unknown ids.
func (s *session) allRoutes() []request {
	id, body := uuid(), s.order(s.cfg.Fixtures.PlanA)
	instance, binding := instancePath(id), bindingPath(id, uuid())
	return []request{
		{method: put, path: instance, query: incomplete, body: body},
		{method: patch, path: instance, query: incomplete, body: body},
		{path: instance},
		{method: del, path: instance, query: s.ids("accepts_incomplete", "true")},
		{path: instance + "/last_operation"},
		{method: put, path: binding, body: body},
		{path: binding},
		{method: del, path: binding, query: s.ids()},
		{path: binding + "/last_operation"},
	}
}

func version(value ...string) http.Header { return http.Header{osb.HeaderVersion: value} }

func authorization(value ...string) http.Header { return http.Header{"Authorization": value} }

func basic(user, password string) http.Header {
	return authorization("Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
}

func (s *session) catalogWith(header http.Header) response {
	s.Helper()
	return s.send(request{path: "/v2/catalog", header: header})
}

func originating(value string) http.Header {
	return http.Header{osb.HeaderOriginatingIdentity: {value}}
}

func encodedIdentity(value string) string { return base64.StdEncoding.EncodeToString([]byte(value)) }

func generalCases() []Case {
	return []Case{
		{ID: "G01", Name: "no version header", run: func(s *session) {
			r := s.expect(s.catalogWith(version()), 412)
			s.expectContains("description", r.text("description"), osb.HeaderVersion)
		}},
		{ID: "G02", Name: "version 1.0", run: func(s *session) {
			r := s.expect(s.catalogWith(version("1.0")), 412)
			s.expectContains("description", r.text("description"), "2.")
		}},
		{ID: "G03", Name: "version 3.0", run: func(s *session) { s.expect(s.catalogWith(version("3.0")), 412) }},
		{ID: "G04", Name: "versions that are none", run: func(s *session) {
			for _, v := range []string{"", "2", "two.17", "2.x", "2.", ".17", "2.17.1", "-2.1", "2.99999999999999999999"} {
				s.expect(s.catalogWith(version(v)), 412)
			}
		}},
		{ID: "G05", Name: "version 2.17", run: func(s *session) { s.expect(s.catalogWith(version("2.17")), 200) }},
		{ID: "G06", Name: "older minor version", run: func(s *session) { s.expect(s.catalogWith(version("2.13")), 200) }},
		{ID: "G07", Name: "newer minor version", run: func(s *session) { s.expect(s.catalogWith(version("2.99")), 200) }},
		{ID: "G08", Name: "provision without a version", run: func(s *session) {
			id := s.newID()
			s.expect(s.send(request{
				method: put, path: instancePath(id), query: incomplete, body: s.order(s.cfg.Fixtures.PlanA), header: version(),
			}), 412)
			s.untouched(id)
		}},
		{ID: "G09", Name: "no version header on every route", run: func(s *session) {
			for _, r := range s.allRoutes() {
				r.header = version()
				s.expect(s.send(r), 412)
			}
		}},
		{ID: "G10", Name: "no credentials on every route", run: func(s *session) {
			for _, r := range append(s.allRoutes(), request{path: "/v2/catalog"}) {
				r.header = authorization()
				if out := s.expect(s.send(r), 401); out.header.Get("WWW-Authenticate") == "" {
					s.Errorf("%s: no WWW-Authenticate", out.what)
				}
			}
		}},
		{ID: "G11", Name: "wrong credentials are all refused alike", run: func(s *session) {
			wrong := map[string]http.Header{
				"wrong password": basic(s.cfg.User, s.cfg.Password+"x"), "unknown user": basic(s.cfg.User+"x", s.cfg.Password),
				"empty password": basic(s.cfg.User, ""), "no token": authorization("Bearer not-a-token"),
				"unknown scheme": authorization("Digest x"), "no base64": authorization("Basic !"),
			}
			for what, token := range s.cfg.BadTokens {
				wrong[what] = authorization("Bearer " + token)
			}
			first := s.expect(s.catalogWith(authorization()), 401)
			for what, header := range wrong {
				r := s.expect(s.catalogWith(header), 401)
				s.expectEqual("the body for "+what, string(r.raw), string(first.raw))
			}
		}},
		{ID: "G12", Name: "neither version nor credentials", run: func(s *session) {
			s.expect(s.catalogWith(http.Header{osb.HeaderVersion: nil, "Authorization": nil}), 401)
		}},
		{ID: "G13", Name: "provision with bad credentials", run: func(s *session) {
			id := s.newID()
			s.expect(s.send(request{
				method: put, path: instancePath(id), query: incomplete, body: s.order(s.cfg.Fixtures.PlanA),
				header: basic(s.cfg.User, "wrong"),
			}), 401)
			s.untouched(id)
		}},
		{ID: "G14", Name: "the request identity is returned", run: func(s *session) {
			body := s.order(s.cfg.Fixtures.PlanA)
			for want, r := range map[int]request{
				200: {path: "/v2/catalog"},
				400: {method: put, path: instancePath(uuid()), query: incomplete, raw: []byte("{")},
				410: {method: del, path: instancePath(uuid()), query: s.ids("accepts_incomplete", "true")},
				412: {path: "/v2/catalog", header: version()},
				422: {method: put, path: instancePath(uuid()), body: body},
			} {
				header := http.Header{osb.HeaderRequestIdentity: {"r-1"}}
				maps.Copy(header, r.header)
				r.header = header
				out := s.expect(s.send(r), want)
				s.expectEqual(out.what+": "+osb.HeaderRequestIdentity, out.header.Get(osb.HeaderRequestIdentity), "r-1")
			}
		}},
		{ID: "G15", Name: "no request identity unless sent", run: func(s *session) {
			if got := s.catalogWith(nil).header.Values(osb.HeaderRequestIdentity); len(got) > 0 {
				s.Errorf("the answer has %s: %q", osb.HeaderRequestIdentity, got)
			}
		}},
		{ID: "G16", Name: "the originating identity is recorded and published", Needs: []string{"Audit"}, run: func(s *session) {
			id := s.newID()
			s.must(s.send(request{
				method: put, path: instancePath(id), query: incomplete, body: s.order(s.cfg.Fixtures.PlanA),
				header: originating("cloudfoundry " + encodedIdentity(`{"user_id":"u"}`)),
			}), 202)
			got, err := s.cfg.Hooks.Audit(s.Context(), id)
			if err != nil || got.Platform != "cloudfoundry" || !osb.SameJSON(got.Value, []byte(`{"user_id":"u"}`)) {
				s.Errorf("recorded: %q %s, %v", got.Platform, got.Value, err)
			}
		}},
		{ID: "G17", Name: "originating identities that are none", run: func(s *session) {
			for _, value := range []string{
				"cloudfoundry", "cloudfoundry ???", "cloudfoundry " + encodedIdentity(`["u"]`), "cloudfoundry " + encodedIdentity("null"),
				"cloudfoundry " + encodedIdentity(`{"user_id"`), "cloud foundry " + encodedIdentity("{}"),
			} {
				id := s.newID()
				s.expect(s.send(request{
					method: put, path: instancePath(id), query: incomplete, body: s.order(s.cfg.Fixtures.PlanA), header: originating(value),
				}), 400)
				s.untouched(id)
			}
		}},
		{ID: "G18", Name: "no originating identity", run: func(s *session) {
			s.expect(s.catalogWith(nil), 200)
			s.expect(s.delete(uuid()), 410)
		}},
		{ID: "G19", Name: "platforms that differ", Needs: []string{"Logs"}, run: func(s *session) {
			before, err := s.cfg.Hooks.Logs(s.Context())
			if err != nil {
				s.Fatalf("hook: %v", err)
			}
			id := s.newID()
			s.expect(s.send(request{
				method: put, path: instancePath(id), query: incomplete,
				body:   s.order(s.cfg.Fixtures.PlanA, setIn("context", map[string]any{"platform": "cloudfoundry"})),
				header: originating("kubernetes " + encodedIdentity(`{"username":"u"}`)),
			}), 202)
			after, err := s.cfg.Hooks.Logs(s.Context())
			if err != nil || len(after) < len(before) {
				s.Fatalf("hook: %v", err)
			}
			s.expectContains("the log", after[len(before):], "WARN", "cloudfoundry", "kubernetes")
		}},
		{ID: "G27", Name: "ids are opaque", run: func(s *session) {
			id := s.newID() + "/a b~%2F"
			s.instances = append(s.instances, id)
			accepted := s.must(s.put(id), 202, 400)
			if accepted.status == 400 { // a broker may allow fewer characters
				s.expect(s.last(id, ""), 404)
				return
			}
			s.expect(s.last(id, accepted.text("operation")), 200)
			s.expect(s.last(s.instances[0], ""), 404)
			s.expect(s.get(id), 200, 404)
			s.expect(s.delete(id), 202)
		}},
		{ID: "G28", Name: "unknown paths and methods", run: func(s *session) {
			for _, path := range []string{"/v2/nothing", "/v2", "/v2/catalog/x", instancePath("i") + "/service_bindings"} {
				s.expect(s.send(request{path: path}), 404)
			}
			for _, path := range []string{"/v2/catalog", instancePath("i"), instancePath("i") + "/last_operation", bindingPath("i", "b")} {
				r := s.expect(s.send(request{method: http.MethodPost, path: path, raw: []byte("{}")}), 405)
				s.expectContains("Allow", r.header.Get("Allow"), http.MethodGet)
			}
		}},
		{ID: "G30", Name: "a panic is an answer", Needs: []string{"Panic"}, run: func(s *session) {
			if err := s.cfg.Hooks.Panic(s.Context()); err != nil {
				s.Fatalf("hook: %v", err)
			}
			r := s.expect(s.catalogWith(nil), 500)
			for _, leak := range []string{"goroutine", ".go:", "panic"} {
				if description := string(r.raw); len(description) > 500 || contains(description, leak) {
					s.Errorf("the body contains the panic: %.200q", description)
				}
			}
			s.expect(s.catalogWith(nil), 200)
		}},
	}
}
