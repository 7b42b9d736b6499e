package landscape_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/landscape"
)

func TestNew_ZeroConfig_TakesNoTime(t *testing.T) {
	t.Parallel()
	l, err := landscape.New(landscape.Config{}, landscape.Deps{})
	require.NoError(t, err)
	server := httptest.NewServer(l.Handler())
	defer server.Close()
	w := &world{t: t, url: server.URL, http: &http.Client{Transport: &http.Transport{}}}
	defer w.http.CloseIdleConnections()

	op, failure := w.ask(provisionQuery, map[string]any{"config": runtimeInput("i-1", "c-1")})
	if failure != nil || text(t, op, "state") != "InProgress" {
		t.Fatalf("a new operation is %v, %v", op, failure)
	}
	id := map[string]any{"id": text(t, op, "runtimeID")}
	status, _ := w.ask(runtimeQuery, id)
	if text(t, status, "lastOperationStatus", "state") != "Succeeded" || text(t, status, "runtimeConfiguration", "kubeconfig") == "" {
		t.Errorf("the next look shows %v", status)
	}
	version := at(t, w.must(200, "POST", clusters, w.cluster("2.20.0")), "configurationVersion")
	if got := w.reconciled(version); got != "ready" {
		t.Errorf("status of the cluster is %s", got)
	}
	if got := w.must(200, "DELETE", clusters+"/r-1", nil); got["status"] != "delete_pending" {
		t.Errorf("status after DELETE is %v", got["status"])
	}
	w.must(404, "GET", clusters+"/r-1/status", nil)
	w.ask(`mutation($id: String!) { result: deprovisionRuntime(id: $id) }`, id)
	left, _ := w.ask(runtimeQuery, id)
	if text(t, left, "lastOperationStatus", "state") != "Succeeded" || at(t, left, "runtimeConfiguration", "kubeconfig") != nil {
		t.Errorf("the runtime is still there: %v", left)
	}
	if now, ever := w.held("gardener", "Shoot"); now != 0 || ever != 1 {
		t.Errorf("Gardener holds %d shoots of %d ever created, want 0 of 1", now, ever)
	}
}
