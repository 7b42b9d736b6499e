package broker_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit/openapi"
)

// The pages of the two APIs.
var (
	runtimesPage  = sync.OnceValues(func() (*openapi.Document, error) { return openapi.Read("../../api/broker.yaml") })
	platformsPage = sync.OnceValues(func() (*openapi.Document, error) { return openapi.Read("../../api/osb.yaml") })
)

// documented compares every answer of a broker with the pages of its APIs.
func documented(t testing.TB, broker http.Handler) http.Handler {
	t.Helper()
	runtimes, err := runtimesPage()
	require.NoError(t, err)
	platforms, err := platformsPage()
	require.NoError(t, err)
	return platforms.Checked(t, runtimes.Checked(t, broker, func(r *http.Request) bool { return !runtimes.Has(r) }), runtimes.Has)
}

func TestOSBPage_Examples_AreServed(t *testing.T) {
	t.Parallel()
	document, err := platformsPage()
	require.NoError(t, err)
	if n := document.Examples(t); n < 6 {
		t.Errorf("%d examples are found", n)
	}
	b := newBench(t, nil)
	newRuntimes(b)
	example := func(path, method string) any {
		at := document.Root["paths"].(map[string]any)[path].(map[string]any)[method].(map[string]any)
		return at["requestBody"].(map[string]any)["content"].(map[string]any)["application/json"].(map[string]any)["example"]
	}
	const instancePath = "/v2/service_instances/{instance_id}"
	const instance, removal = "/oauth/cf-eu10/v2/service_instances/i", "?accepts_incomplete=true&service_id=" + serviceID + "&plan_id=" + azure
	b.expect("catalog", b.send(http.MethodGet, "/oauth/v2/catalog", nil), http.StatusOK)
	b.ended("i", b.accepted(b.send(http.MethodPut, instance+"?accepts_incomplete=true", example(instancePath, "put"))), "succeeded")
	b.expect("fetch", b.send(http.MethodGet, instance, nil), http.StatusOK)
	b.ended("i", b.accepted(b.send(http.MethodPatch, instance+"?accepts_incomplete=true", example(instancePath, "patch"))), "succeeded")
	binding := instance + "/service_bindings/b"
	b.expect("bind", b.send(http.MethodPut, binding, example(instancePath+"/service_bindings/{binding_id}", "put")), http.StatusCreated)
	b.expect("fetch binding", b.send(http.MethodGet, binding, nil), http.StatusOK)
	b.expect("poll binding", b.send(http.MethodGet, binding+"/last_operation", nil), http.StatusOK)
	b.expect("unbind", b.send(http.MethodDelete, binding+removal, nil), http.StatusOK)
	b.accepted(b.send(http.MethodDelete, instance+removal, nil))
}
