package osb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/osb"
)

func TestHandler_BrokerErrors_BecomeAnswers(t *testing.T) {
	t.Parallel()
	no := false
	tests := map[string]struct {
		err    error
		status int
		parts  []string
	}{
		"wrapped": {fmt.Errorf("order: %w", osb.Conflict("other")), 409, []string{`"description":"other"`}},
		"flags": {
			&osb.Error{Status: 422, Code: "X", Description: "d", InstanceUsable: &no, UpdateRepeatable: &no}, 422,
			[]string{`"error":"X"`, `"instance_usable":false`, `"update_repeatable":false`},
		},
		"gone":            {osb.Gone(), 410, []string{"{}"}},
		"unknown":         {errors.New("db-canary"), 500, []string{"description"}},
		"deadline":        {fmt.Errorf("db-canary: %w", context.DeadlineExceeded), 503, []string{"description"}},
		"no status":       {&osb.Error{Description: "db-canary"}, 500, []string{"description"}},
		"no description":  {&osb.Error{Status: 400}, 400, []string{`"description":"Bad Request"`}},
		"body that fails": {&osb.Error{Status: 400, Body: func() {}}, 500, []string{"description"}},
		"nothing":         {nil, 500, []string{"description"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &stub{provision: func(context.Context, *osb.ProvisionRequest) (osb.ProvisionResult, error) { return nil, tt.err }}
			w := call(t.Context(), osb.NewHandler(b, auth), http.MethodPut, instanceTarget, validBody)
			expectAnswer(t, w, tt.status, tt.parts...)
			if strings.Contains(w.Body.String(), "canary") {
				t.Errorf("the cause is in the body %s", w.Body)
			}
		})
	}
}

func TestRetryAfter_Fraction_IsRoundedUp(t *testing.T) {
	t.Parallel()
	b := &stub{provision: func(context.Context, *osb.ProvisionRequest) (osb.ProvisionResult, error) {
		return nil, &osb.Error{Status: 503, Description: "d", RetryAfter: 1200 * time.Millisecond}
	}}
	w := call(t.Context(), osb.NewHandler(b, auth), http.MethodPut, instanceTarget, validBody)
	if got := w.Header().Get("Retry-After"); got != "2" {
		t.Errorf("Retry-After: %q", got)
	}
}

func TestHandler_NoAuthenticator_Returns401(t *testing.T) {
	t.Parallel()
	expectAnswer(t, call(t.Context(), osb.NewHandler(&stub{}), http.MethodGet, "/v2/catalog", ""), 401)
}

func TestBasicAuth_EmptyPassword_IsRejected(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodGet, "/v2/catalog", nil)
	r.SetBasicAuth("other", "")
	w := httptest.NewRecorder()
	osb.NewHandler(&stub{}, auth).ServeHTTP(w, r)
	expectAnswer(t, w, 401)
}

// bearer rejects everything with its error.
type bearer struct{ err error }

func (b bearer) Authenticate(*http.Request) (osb.Principal, error) { return osb.Principal{}, b.err }
func (b bearer) Challenge() string                                 { return "Bearer" }

func TestAnyOf_OneAccepts_Authenticates(t *testing.T) {
	t.Parallel()
	basic := osb.BasicAuth("test", map[string]string{"u": "p"})
	away := bearer{osb.Unavailable(errors.New("issuer away"))}
	expectAnswer(t, call(t.Context(), osb.NewHandler(&stub{}, osb.WithAuth(osb.AnyOf(away, basic))), http.MethodGet, "/v2/catalog", ""), 200)
	r := httptest.NewRequest(http.MethodGet, "/v2/catalog", nil)
	w := httptest.NewRecorder()
	osb.NewHandler(&stub{}, osb.WithAuth(osb.AnyOf(basic, bearer{osb.ErrUnauthenticated}))).ServeHTTP(w, r)
	expectAnswer(t, w, 401)
	if got := w.Header().Get("WWW-Authenticate"); got != `Basic realm="test", charset="UTF-8", Bearer` {
		t.Errorf("challenge: %q", got)
	}
	w = httptest.NewRecorder()
	osb.NewHandler(&stub{}, osb.WithAuth(osb.AnyOf(away, basic))).ServeHTTP(w, r)
	expectAnswer(t, w, 503)
}

func TestHandler_Request_ReachesBroker(t *testing.T) {
	t.Parallel()
	var got *osb.ProvisionRequest
	b := &stub{provision: func(_ context.Context, req *osb.ProvisionRequest) (osb.ProvisionResult, error) {
		got = req
		return osb.Accepted{Operation: "op"}, nil
	}}
	body := `{"service_id":"s1","plan_id":"pa","SERVICE_ID":"x","context":{"a":1},"parameters":null}`
	w := call(t.Context(), osb.NewHandler(b, auth), http.MethodPut,
		"/oauth/cf-eu10/v2/service_instances/a%2Fb%20~?accepts_incomplete=true", body)
	expectAnswer(t, w, 202, `"operation":"op"`)
	type view struct{ Instance, Region, Service, Plan, Context, Parameters, Principal, Body string }
	want := view{"a/b ~", "cf-eu10", "one", "a", `{"a":1}`, "", "u", body}
	have := view{
		got.InstanceID, got.Region, got.Service.Name, got.Plan.Name, string(got.Context), string(got.Parameters), got.Principal.Name,
		string(got.Body),
	}
	if diff := cmp.Diff(want, have); diff != "" || !got.AcceptsIncomplete || got.ID == "" {
		t.Error(diff)
	}
}

func TestHandler_CharacterNUL_IsRejected(t *testing.T) {
	t.Parallel()
	h := osb.NewHandler(&stub{}, auth)
	tests := map[string]struct{ target, body string }{
		"nul in body":         {instanceTarget, `{"service_id":"s1","plan_id":"pa","space_guid":"\u0000"}`},
		"control in id":       {"/v2/service_instances/a%00b", validBody},
		"id not utf-8":        {"/v2/service_instances/%ff", validBody},
		"id too long":         {"/v2/service_instances/" + strings.Repeat("a", osb.MaxIDLength+1), validBody},
		"maintenance_info":    {instanceTarget, `{"service_id":"s1","plan_id":"pa","maintenance_info":{"version":1}}`},
		"space_guid a number": {instanceTarget, `{"service_id":"s1","plan_id":"pa","space_guid":1}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expectAnswer(t, call(t.Context(), h, http.MethodPut, tt.target, tt.body), 400, "description")
		})
	}
}

func TestHandler_EscapedBackslashU0000_IsAccepted(t *testing.T) {
	t.Parallel()
	b := &stub{provision: func(context.Context, *osb.ProvisionRequest) (osb.ProvisionResult, error) { return osb.Accepted{}, nil }}
	body := `{"service_id":"s1","plan_id":"pa","space_guid":"\\u0000"}`
	expectAnswer(t, call(t.Context(), osb.NewHandler(b, auth), http.MethodPut, instanceTarget, body), 202)
}

func TestHandler_UncleanPath_IsNotRedirected(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"/v2//catalog", "/v2/../v2/catalog", "/v2/catalog/", "/", "/v2/service_instances//last_operation"} {
		expectAnswer(t, call(t.Context(), osb.NewHandler(&stub{}, auth), http.MethodGet, target, ""), 404, "description")
	}
}

func TestHandler_PlatformDisconnects_FinishesChange(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := &stub{provision: func(ctx context.Context, _ *osb.ProvisionRequest) (osb.ProvisionResult, error) {
		if _, limited := ctx.Deadline(); !limited {
			t.Error("the context has no deadline")
		}
		return osb.Accepted{Operation: "op"}, ctx.Err()
	}}
	expectAnswer(t, call(ctx, osb.NewHandler(b, auth), http.MethodPut, instanceTarget, validBody), 202)
}

func TestHandler_Panic_IsLoggedWithoutValue(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	var seen []osb.Observation
	b := &stub{provision: func(context.Context, *osb.ProvisionRequest) (osb.ProvisionResult, error) { panic("secret-canary") }}
	h := osb.NewHandler(b, auth, osb.WithLogger(slog.New(slog.NewJSONHandler(&log, nil))),
		osb.WithObserver(func(_ context.Context, o osb.Observation) { seen = append(seen, o) }))
	w := call(t.Context(), h, http.MethodPut, instanceTarget, validBody)
	expectAnswer(t, w, 500, "description")
	if text := log.String() + w.Body.String(); strings.Contains(text, "canary") || !strings.Contains(text, `"level":"ERROR"`) ||
		!strings.Contains(text, "handler_test.go") {
		t.Errorf("log and body: %s", text)
	}
	if len(seen) != 1 || seen[0].Status != 500 || seen[0].Route != "/v2/service_instances/{instance_id}" ||
		seen[0].InstanceID != "i" || seen[0].Call.Principal.Name != "u" {
		t.Errorf("observed: %+v", seen)
	}
}

func TestBind_Rotation_NeedsNoPlan(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	c := validCatalog()
	c.Services[0].Plans[0].BindingRotatable, c.Services[0].Plans[1].Bindable = &yes, &no
	b := &stub{catalog: c, bind: func(*osb.BindRequest) (osb.BindResult, error) { return osb.Bound{}, nil }}
	h := osb.NewHandler(b, auth)
	for body, want := range map[string]int{
		`{"service_id":"s1","plan_id":"pa"}`:                                  201,
		`{"service_id":"s1","plan_id":"pb"}`:                                  400,
		`{"service_id":"s1"}`:                                                 400,
		`{"predecessor_binding_id":"b0"}`:                                     201,
		`{"service_id":"s1","plan_id":"pa","predecessor_binding_id":"b0"}`:    201,
		`{"service_id":"s2","plan_id":"px","predecessor_binding_id":"b0"}`:    400,
		`{"service_id":"s1","plan_id":"pa","bind_resource":{"app_guid":7}}`:   400,
		`{"service_id":"s1","plan_id":"pa","bind_resource":["no", "object"]}`: 400,
	} {
		if w := call(t.Context(), h, http.MethodPut, instanceTarget+"/service_bindings/b", body); w.Code != want {
			t.Errorf("%s: status %d %s, want %d", body, w.Code, w.Body, want)
		}
	}
}

func TestHandler_OtherContentEncoding_IsRejected(t *testing.T) {
	t.Parallel()
	b := &stub{provision: func(context.Context, *osb.ProvisionRequest) (osb.ProvisionResult, error) { return osb.Accepted{}, nil }}
	h := osb.NewHandler(b, auth)
	for _, tt := range []struct {
		name, value string
		want        int
	}{
		{"Content-Type", "application/json; charset=UTF-8", 202},
		{"Content-Type", "application/json; charset=utf-16", 400},
		{"Content-Encoding", "identity", 202},
		{"Content-Encoding", "gzip", 415},
		{"Content-Encoding", "br", 415},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, instanceTarget, strings.NewReader(validBody))
		r.SetBasicAuth("u", "p")
		r.Header.Set(osb.HeaderVersion, osb.SpecVersion)
		r.Header.Set(tt.name, tt.value)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%s %s: %d %s, want %d", tt.name, tt.value, w.Code, w.Body, tt.want)
		}
	}
}

func TestHandler_InvalidQuery_IsRejected(t *testing.T) {
	t.Parallel()
	h := osb.NewHandler(&stub{}, auth)
	for _, query := range []string{"accepts_incomplete=true;x=y", "operation=%zz"} {
		expectAnswer(t, call(t.Context(), h, http.MethodPut, instanceTarget+"?"+query, validBody), 400, "query")
	}
}
