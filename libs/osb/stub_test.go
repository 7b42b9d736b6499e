package osb_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/osb"
)

// stub is a broker with fixed answers. The suite in osbtest covers real behaviour.
type stub struct {
	osb.Broker
	catalog   *osb.Catalog
	provision func(ctx context.Context, req *osb.ProvisionRequest) (osb.ProvisionResult, error)
	bind      func(req *osb.BindRequest) (osb.BindResult, error)
}

func (s *stub) Catalog(context.Context, string) (*osb.Catalog, error) {
	if s.catalog == nil {
		s.catalog = validCatalog()
	}
	return s.catalog, nil
}

func (s *stub) Provision(ctx context.Context, req *osb.ProvisionRequest) (osb.ProvisionResult, error) {
	return s.provision(ctx, req)
}

func (s *stub) Bind(_ context.Context, req *osb.BindRequest) (osb.BindResult, error) {
	return s.bind(req)
}

var auth = osb.WithAuth(osb.BasicAuth("test", map[string]string{"u": "p", "other": ""}))

// call sends a request with credentials and version, with a context that may be done.
func call(ctx context.Context, h http.Handler, method, target, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	r.SetBasicAuth("u", "p")
	r.Header.Set(osb.HeaderVersion, osb.SpecVersion)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const (
	instanceTarget = "/v2/service_instances/i"
	validBody      = `{"service_id":"s1","plan_id":"pa"}`
)

func expectAnswer(t *testing.T, w *httptest.ResponseRecorder, status int, parts ...string) {
	t.Helper()
	if w.Code != status {
		t.Errorf("status %d %s, want %d", w.Code, w.Body, status)
	}
	for _, part := range parts {
		if !strings.Contains(w.Body.String(), part) {
			t.Errorf("the body %s does not contain %q", w.Body, part)
		}
	}
}
