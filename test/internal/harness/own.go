package harness

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// AnyCluster is the address of a Kubernetes API that tells its version to every user, for kubeconfigs of own clusters whose
// secrets are looked for afterwards. It knows nothing else.
func AnyCluster(t testing.TB) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/version" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"major":"1","minor":"26","gitVersion":"v1.26.5"}`))
	}))
	t.Cleanup(server.Close)
	return server.URL
}
