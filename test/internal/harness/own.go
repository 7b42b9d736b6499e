package harness

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"
)

// AnyCluster returns the cluster entry of a kubeconfig: a Kubernetes API that answers its version to every user, and nothing else.
// It is for kubeconfigs of own clusters whose secrets are looked for afterwards.
func AnyCluster(t testing.TB) map[string]any {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/version" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"major":"1","minor":"26","gitVersion":"v1.26.5"}`))
	}))
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return map[string]any{"server": server.URL, "certificate-authority-data": authority}
}
