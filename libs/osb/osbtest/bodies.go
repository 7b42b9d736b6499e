package osbtest

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strings"
)

func contains(text, part string) bool { return strings.Contains(text, part) }

func contentType(value ...string) http.Header { return http.Header{"Content-Type": value} }

// badBodies are bodies that are not a JSON object.
var badBodies = []string{`{"service_id":`, `["a"]`, `"text"`, ``, `null`, `{} {}`, "{\"a\":\"\xff\"}"}

func bodyCases() []Case {
	return []Case{
		{ID: "G20", Name: "unknown members are ignored", run: func(s *session) {
			s.expect(s.put(s.newID(), set("future", map[string]any{"a": 1}), setIn("context", map[string]any{"future": []any{1}})), 202)
		}},
		{ID: "G21", Name: "no content type", run: func(s *session) {
			s.expect(s.putWith(s.newID(), contentType()), 202)
		}},
		{ID: "G22", Name: "another content type", run: func(s *session) {
			id := s.newID()
			s.expect(s.putWith(id, contentType("text/plain")), 400)
			s.untouched(id)
		}},
		{ID: "G23", Name: "content type with a charset", run: func(s *session) {
			s.expect(s.putWith(s.newID(), contentType("application/json; charset=utf-8")), 202)
		}},
		{ID: "G24", Name: "bodies that are no JSON object", run: func(s *session) {
			id := s.newID()
			for _, body := range badBodies {
				s.expect(s.send(request{
					method: put, path: instancePath(id), query: incomplete, raw: []byte(body), header: contentType("application/json"),
				}), 400)
			}
			s.untouched(id)
		}},
		{ID: "G25", Name: "a body that is too large", run: func(s *session) {
			id := s.newID()
			body := s.order(s.cfg.Fixtures.PlanA, set("future", strings.Repeat("x", s.cfg.BodyLimit)))
			s.expect(s.send(request{method: put, path: instancePath(id), query: incomplete, body: body}), 413, 400)
			s.expect(s.catalogWith(nil), 200)
			s.untouched(id)
		}},
		{ID: "G26", Name: "every body is JSON with its content type", run: func(s *session) {
			answers := []response{
				s.catalogWith(nil), s.catalogWith(version()), s.catalogWith(authorization()), s.delete(uuid()),
				s.send(request{path: "/v2/nothing"}), s.send(request{method: http.MethodPost, path: "/v2/catalog"}),
				s.put(s.newID(), drop("plan_id")), s.get(uuid()), s.last(uuid(), ""), s.put(s.newID()),
			}
			for _, r := range answers {
				media, _, err := mime.ParseMediaType(r.header.Get("Content-Type"))
				if err != nil || media != "application/json" || !json.Valid(r.raw) {
					s.Errorf("%s: status %d with Content-Type %q and the body %.200q", r.what, r.status, media, r.raw)
				}
				if text, present := r.body["description"]; present && text == "" {
					s.Errorf("%s: status %d with an empty description", r.what, r.status)
				}
			}
		}},
		{ID: "G29", Name: "a refused request changes nothing", run: func(s *session) {
			refused := map[string]request{
				"no body": {raw: []byte("")}, "no plan": {body: s.order(s.cfg.Fixtures.PlanA, drop("plan_id"))},
				"bad service": {body: s.order(s.cfg.Fixtures.PlanA, set("service_id", "unknown"))},
				"no version":  {body: s.order(s.cfg.Fixtures.PlanA), header: version()},
				"bad user":    {body: s.order(s.cfg.Fixtures.PlanA), header: basic("x", "y")},
			}
			for _, r := range refused {
				id := s.newID()
				r.method, r.path, r.query = put, instancePath(id), incomplete
				s.expect(s.send(r), 400, 401, 412)
				s.untouched(id)
			}
			id, _ := s.provisioned()
			before := s.must(s.get(id), 200)
			s.expect(s.send(request{method: del, path: instancePath(id), query: incomplete}), 400)
			s.expect(s.send(request{method: del, path: instancePath(id), query: s.ids()}), 422)
			s.expect(s.send(request{method: patch, path: instancePath(id), query: incomplete, raw: []byte("{")}), 400)
			s.expectEqual("the instance after refused requests", string(s.get(id).raw), string(before.raw))
			s.expectEqual("the last operation", s.last(id, "").text("state"), "succeeded")
		}},
	}
}

func (s *session) putWith(id string, header http.Header) response {
	s.Helper()
	return s.send(request{
		method: put, path: instancePath(id), query: incomplete, body: s.order(s.cfg.Fixtures.PlanA), header: header,
	})
}

// reordered encodes a value with its members in reverse order and much white space.
func reordered(value any) []byte {
	var out bytes.Buffer
	switch v := value.(type) {
	case map[string]any:
		out.WriteString("{\n ")
		for i, name := range slices.Backward(sortedNames(v)) {
			quoted, _ := json.Marshal(name)
			out.Write(quoted)
			out.WriteString(" : ")
			out.Write(reordered(v[name]))
			if i > 0 {
				out.WriteString(" ,\n\t")
			}
		}
		out.WriteString("\n}")
	case []any:
		out.WriteString("[ ")
		for i, inner := range v {
			if i > 0 {
				out.WriteString(" , ")
			}
			out.Write(reordered(inner))
		}
		out.WriteString(" ]")
	default:
		raw, _ := json.Marshal(v)
		out.Write(raw)
	}
	return out.Bytes()
}
