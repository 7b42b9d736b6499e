package osbtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/osb"
)

// session is one run of one case.
type session struct {
	T
	cfg       Config
	instances []string
	undo      []func()
}

func isHook(name string) bool {
	_, ok := reflect.TypeFor[Hooks]().FieldByName(name)
	return ok
}

// request is a request of a case. A zero field means the valid value.
type request struct {
	method string
	path   string
	query  url.Values
	// header replaces headers; a nil entry removes one.
	header http.Header
	// body is sent as JSON; raw is sent unchanged.
	body any
	raw  []byte
}

// response is the response to a request.
type response struct {
	what   string
	status int
	header http.Header
	raw    []byte
	body   map[string]any
}

func (r response) text(name string) string {
	s, _ := r.body[name].(string)
	return s
}

// try sends a request and returns the transport's error.
func (s *session) try(r request) (response, error) {
	if r.method == "" {
		r.method = http.MethodGet
	}
	raw := r.raw
	if r.body != nil {
		var err error
		if raw, err = json.Marshal(r.body); err != nil {
			return response{}, fmt.Errorf("encode the body: %w", err)
		}
	}
	address := strings.TrimRight(s.cfg.BaseURL, "/") + r.path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), s.cfg.OperationTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, address, bytes.NewReader(raw))
	if err != nil {
		return response{}, err
	}
	req.Header.Set(osb.HeaderVersion, osb.SpecVersion)
	req.SetBasicAuth(s.cfg.User, s.cfg.Password)
	if len(raw) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, values := range r.header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	res, err := s.cfg.Client.Do(req)
	if err != nil {
		return response{}, err
	}
	defer func() { _ = res.Body.Close() }()
	out := response{what: r.method + " " + r.path, status: res.StatusCode, header: res.Header}
	if out.raw, err = io.ReadAll(res.Body); err != nil {
		return response{}, fmt.Errorf("read the answer: %w", err)
	}
	_ = json.Unmarshal(out.raw, &out.body)
	return out, nil
}

// send sends a request and searches the answer for secrets.
func (s *session) send(r request) response {
	s.Helper()
	out, err := s.try(r)
	if err != nil {
		s.Fatalf("%s %s: %v", r.method, r.path, err)
	}
	for _, secret := range s.cfg.Secrets {
		if bytes.Contains(out.raw, []byte(secret)) {
			s.Errorf("%s: the answer with status %d holds a secret", out.what, out.status)
		}
	}
	return out
}

// expect checks the status, and the body of an error.
func (s *session) expect(r response, statuses ...int) response {
	s.Helper()
	if !slices.Contains(statuses, r.status) {
		s.Errorf("%s: status %d %.300s, want %v", r.what, r.status, r.raw, statuses)
	}
	if r.status >= 400 && r.status != http.StatusGone && r.text("description") == "" {
		s.Errorf("%s: status %d with the body %.300q, want a JSON object with a description", r.what, r.status, r.raw)
	}
	return r
}

// must is like expect, but ends the case.
func (s *session) must(r response, statuses ...int) response {
	s.Helper()
	if s.expect(r, statuses...); !slices.Contains(statuses, r.status) {
		s.Fatalf("cannot go on")
	}
	return r
}

func (s *session) expectCode(r response, status int, code string) {
	s.Helper()
	s.expect(r, status)
	if got := r.text("error"); got != code {
		s.Errorf("%s: error %q, want %q", r.what, got, code)
	}
}

func (s *session) expectEqual(what string, got, want any) {
	s.Helper()
	if !reflect.DeepEqual(got, want) {
		s.Errorf("%s: %v, want %v", what, got, want)
	}
}

func (s *session) expectContains(what, text string, parts ...string) {
	s.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			s.Errorf("%s: %.300q does not contain %q", what, text, part)
		}
	}
}

// uuid returns a random UUID, as platforms use for ids.
func uuid() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// newID returns a new instance id, which is deprovisioned after the case.
func (s *session) newID() string {
	id := uuid()
	s.instances = append(s.instances, id)
	return id
}

func instancePath(id string) string { return "/v2/service_instances/" + url.PathEscape(id) }

func bindingPath(id, binding string) string {
	return instancePath(id) + "/service_bindings/" + url.PathEscape(binding)
}

var incomplete = url.Values{"accepts_incomplete": {"true"}}

// order returns a valid body for a plan, changed by the edits.
func (s *session) order(plan string, edits ...func(map[string]any)) map[string]any {
	body := map[string]any{
		"service_id": s.cfg.Fixtures.ServiceID, "plan_id": plan, "organization_guid": "org-1", "space_guid": "space-1",
	}
	if s.cfg.Parameters != nil {
		body["parameters"] = maps.Clone(s.cfg.Parameters(plan))
	}
	if s.cfg.Context != nil {
		body["context"] = maps.Clone(s.cfg.Context(plan))
	}
	for _, edit := range edits {
		edit(body)
	}
	return body
}

func set(name string, value any) func(map[string]any) {
	return func(b map[string]any) { b[name] = value }
}

func drop(name string) func(map[string]any) { return func(b map[string]any) { delete(b, name) } }

// setIn sets a member of a nested object.
func setIn(outer string, members map[string]any) func(map[string]any) {
	return func(b map[string]any) {
		inner, _ := b[outer].(map[string]any)
		inner = maps.Clone(inner)
		if inner == nil {
			inner = map[string]any{}
		}
		maps.Copy(inner, members)
		b[outer] = inner
	}
}

func (s *session) put(id string, edits ...func(map[string]any)) response {
	s.Helper()
	return s.send(request{
		method: http.MethodPut, path: instancePath(id), query: incomplete, body: s.order(s.cfg.Fixtures.PlanA, edits...),
	})
}

func (s *session) delete(id string) response {
	s.Helper()
	return s.send(request{method: http.MethodDelete, path: instancePath(id), query: s.ids("accepts_incomplete", "true")})
}

// ids returns the query with the required ids of a DELETE, and additional pairs.
func (s *session) ids(pairs ...string) url.Values {
	query := url.Values{"service_id": {s.cfg.Fixtures.ServiceID}, "plan_id": {s.cfg.Fixtures.PlanA}}
	for i := 0; i+1 < len(pairs); i += 2 {
		query.Set(pairs[i], pairs[i+1])
	}
	return query
}

func (s *session) get(id string) response {
	s.Helper()
	return s.send(request{path: instancePath(id)})
}

// last requests the state of an operation; an empty one is omitted.
func (s *session) last(id, operation string) response {
	s.Helper()
	query := url.Values{}
	if operation != "" {
		query.Set("operation", operation)
	}
	return s.send(request{path: instancePath(id) + "/last_operation", query: query})
}

// wait polls until an operation is not in progress any more and returns the last answer.
func (s *session) wait(path, operation string) response {
	s.Helper()
	var last response
	s.eventually("the operation ends", func() bool {
		last = s.send(request{path: path + "/last_operation", query: url.Values{"operation": {operation}}})
		return last.status != http.StatusOK || last.text("state") != string(osb.StateInProgress)
	})
	return last
}

// eventually waits for a condition, and ends the case after the operation timeout.
func (s *session) eventually(what string, ok func() bool) {
	s.Helper()
	deadline := time.Now().Add(s.cfg.OperationTimeout)
	ticker := time.NewTicker(s.cfg.PollEvery)
	defer ticker.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			s.Fatalf("waited %s in vain until %s", s.cfg.OperationTimeout, what)
		}
		select {
		case <-ticker.C:
		case <-s.Context().Done():
			s.Fatalf("stopped while waiting until %s: %v", what, s.Context().Err())
		}
	}
}

// ended waits for the operation of an accepted request and checks the result.
func (s *session) ended(id string, accepted response, want osb.State) response {
	s.Helper()
	s.must(accepted, http.StatusAccepted)
	last := s.must(s.wait(instancePath(id), accepted.text("operation")), http.StatusOK)
	if got := last.text("state"); got != string(want) {
		s.Fatalf("the operation %s ended %q (%s), want %q", accepted.text("operation"), got, last.text("description"), want)
	}
	return last
}

// provisioned creates an instance, and returns the answer that accepted it.
func (s *session) provisioned(edits ...func(map[string]any)) (string, response) {
	s.Helper()
	id := s.newID()
	accepted := s.put(id, edits...)
	s.ended(id, accepted, osb.StateSucceeded)
	return id, accepted
}

// deprovisioned removes an instance and returns the answer that accepted it.
func (s *session) deprovisioned(id string) response {
	s.Helper()
	accepted := s.delete(id)
	s.ended(id, accepted, osb.StateSucceeded)
	return accepted
}

// untouched checks that an instance id is unknown, as if no request had been sent.
func (s *session) untouched(id string) {
	s.Helper()
	if s.cfg.Hooks.Counts != nil {
		counts, err := s.cfg.Hooks.Counts(s.Context(), id)
		if err != nil || counts != (Counts{}) {
			s.Errorf("after a refused request there are %+v, %v", counts, err)
		}
	}
	s.expect(s.get(id), http.StatusNotFound)
	s.expect(s.last(id, ""), http.StatusNotFound)
	s.expect(s.delete(id), http.StatusGone)
}

// use calls a hook whose change lasts until the end of the case, or until the returned function is called.
func (s *session) use(hook func(context.Context) (func(), error)) (restore func()) {
	s.Helper()
	undo, err := hook(s.Context())
	if err != nil {
		s.Fatalf("hook: %v", err)
	}
	done := false
	restore = func() {
		if !done {
			done = true
			undo()
		}
	}
	s.undo = append(s.undo, restore)
	return restore
}

// cleanUp reverts the hooks and deprovisions the instances of the case. It does not wait, and ignores errors: the case is over.
func (s *session) cleanUp() {
	for _, undo := range slices.Backward(s.undo) {
		undo()
	}
	for _, id := range s.instances {
		_, _ = s.try(request{method: http.MethodDelete, path: instancePath(id), query: s.ids("accepts_incomplete", "true")})
	}
}
