package landscape_test

import (
	"strings"
	"testing"
)

func TestKubeconfig_RealCluster_IsReturned(t *testing.T) {
	t.Parallel()
	const secret, path = "CANARY-1c7e", "/admin/systems/provisioner/kubeconfigs"
	w := setup(t)
	for _, bad := range []any{map[string]any{"instanceId": "i-1"}, map[string]any{"kubeconfig": "k"}, map[string]any{"instance": "i-1"}} {
		w.must(400, "PUT", path, bad)
	}
	w.must(400, "PUT", "/admin/systems/avs/kubeconfigs", map[string]any{"instanceId": "i-1", "kubeconfig": "k"})
	w.must(200, "PUT", path, map[string]any{"instanceId": "i-1", "kubeconfig": "token: " + secret})

	kubeconfigs := func(instance string) string {
		t.Helper()
		op, failure := w.ask(provisionQuery, map[string]any{"config": runtimeInput(instance, "c-"+instance)})
		if failure != nil {
			t.Fatal(failure)
		}
		w.clock.Advance(2 * clusterTime)
		status, _ := w.ask(runtimeQuery, map[string]any{"id": text(t, op, "runtimeID")})
		return text(t, status, "runtimeConfiguration", "kubeconfig")
	}
	if got := kubeconfigs("i-1"); got != "token: "+secret {
		t.Errorf("the kubeconfig of the real cluster is %q", got)
	}
	if got := kubeconfigs("i-2"); !strings.Contains(got, "/k8s/runtimes/") {
		t.Errorf("the kubeconfig of another instance is %q", got)
	}
	for _, shown := range []string{path, "/admin/systems/provisioner/objects"} {
		status, body := w.call("GET", shown, nil)
		if status != 200 || strings.Contains(string(body), secret) || !strings.Contains(string(body), "i-1") {
			t.Errorf("GET %s: %d %s", shown, status, body)
		}
	}
	w.must(204, "DELETE", path, nil)
	if got := kubeconfigs("i-3"); !strings.Contains(got, "/k8s/runtimes/") || at(t, w.must(200, "GET", path, nil), "count") != 0.0 {
		t.Errorf("after they were dropped: %q", got)
	}
}
