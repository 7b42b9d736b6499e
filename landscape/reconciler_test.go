package landscape_test

import (
	"fmt"
	"strings"
	"testing"
)

const kubeconfig = `
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://c.example.com"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: canary-token}}]
`

func cluster(version string) map[string]any {
	return map[string]any{
		"runtimeID": "r-1", "runtimeInput": map[string]any{"name": "runtime"}, "kubeconfig": kubeconfig,
		"metadata":   map[string]any{"instanceID": "i-1"},
		"kymaConfig": map[string]any{"version": version, "profile": "Production", "components": []any{map[string]any{"component": "istio", "configuration": []any{map[string]any{"key": "k", "value": "canary-value", "secret": true}}}}},
	}
}

const clusters = "/reconciler/v1/clusters"

func (w *world) reconciled(version any) string {
	w.t.Helper()
	return text(w.t, w.must(200, "GET", fmt.Sprintf("%s/r-1/configs/%v/status", clusters, version), nil), "status")
}

func TestReconcilerGetsReadyByTheClock(t *testing.T) {
	t.Parallel()
	w := setup(t)
	first := w.must(200, "POST", clusters, cluster("2.20.0"))
	version := at(t, first, "configurationVersion")
	if !strings.HasPrefix(text(t, first, "statusURL"), w.url+clusters) {
		t.Errorf("status URL is %v", first["statusURL"])
	}
	for _, want := range []string{"reconcile_pending", "reconciling", "ready"} {
		if got := w.reconciled(version); got != want {
			t.Errorf("status is %s, want %s", got, want)
		}
		w.clock.advance(reconcileTime / 2)
	}

	again := w.must(200, "PUT", clusters, cluster("2.20.0"))
	if again["configurationVersion"] != version || again["clusterVersion"] != first["clusterVersion"] || again["status"] != "reconcile_pending" {
		t.Errorf("the same cluster again is %v, first it was %v", again, first)
	}
	newer := w.must(200, "POST", clusters, cluster("2.21.0"))
	if newer["configurationVersion"] == version || newer["clusterVersion"] != first["clusterVersion"] {
		t.Errorf("another Kyma version is %v, first it was %v", newer, first)
	}
	if now, ever := w.held("reconciler", "cluster"); now != 1 || ever != 1 {
		t.Errorf("Reconciler holds %d clusters of %d ever made, want 1 of 1", now, ever)
	}
	w.must(404, "GET", clusters+"/r-1/configs/999/status", nil)
	changes := w.must(200, "GET", clusters+"/r-1/statusChanges?offset=168h", nil)
	if got := text(t, changes, "statusChanges", 0, "status"); got != "reconcile_pending" {
		t.Errorf("first status change is %s", got)
	}
}

func TestReconcilerKnowsEachConfigurationVersion(t *testing.T) {
	t.Parallel()
	w := setup(t)
	first := w.must(200, "POST", clusters, cluster("2.20.0"))["configurationVersion"]
	w.clock.advance(reconcileTime)
	second := w.must(200, "POST", clusters, cluster("2.21.0"))["configurationVersion"]
	if got := w.reconciled(first); got != "ready" {
		t.Errorf("the first version is %s, it was ready before the second one came", got)
	}
	if got := w.reconciled(second); got != "reconcile_pending" {
		t.Errorf("the second version is %s", got)
	}
	w.clock.advance(reconcileTime)
	if got := w.reconciled(second); got != "ready" {
		t.Errorf("at the end the second version is %s", got)
	}
	if got := text(t, w.must(200, "GET", clusters+"/r-1/status", nil), "status"); got != "ready" {
		t.Errorf("at the end the cluster is %s", got)
	}
}

func TestReconcilerForgetsADeletedCluster(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.must(404, "DELETE", clusters+"/r-1", nil)
	w.must(200, "POST", clusters, cluster("2.20.0"))
	got := w.must(200, "DELETE", clusters+"/r-1", nil)
	if got["status"] != "delete_pending" {
		t.Errorf("status after DELETE is %v", got["status"])
	}
	w.clock.advance(reconcileTime / 4)
	if got := text(t, w.must(200, "GET", clusters+"/r-1/status", nil), "status"); got != "deleting" {
		t.Errorf("status on the way is %s", got)
	}
	w.clock.advance(reconcileTime / 4)
	w.must(404, "GET", clusters+"/r-1/status", nil)
	if now, _ := w.held("reconciler", "cluster"); now != 0 {
		t.Errorf("Reconciler still holds %d clusters", now)
	}
}

func TestReconcilerLeavesADisabledClusterAlone(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.must(200, "POST", clusters, cluster("2.20.0"))
	w.must(200, "PUT", clusters+"/r-1/status", map[string]any{"status": "reconcile_disabled"})
	got := w.must(200, "POST", clusters, cluster("2.21.0"))
	if got["status"] != "reconcile_disabled" {
		t.Errorf("status is %v", got["status"])
	}
	w.must(400, "PUT", clusters+"/r-1/status", map[string]any{"status": "tired"})
	w.must(200, "PUT", clusters+"/r-1/status", map[string]any{"status": "reconcile_pending"})
	w.clock.advance(reconcileTime)
	if got := text(t, w.must(200, "GET", clusters+"/r-1/status", nil), "status"); got != "ready" {
		t.Errorf("status after enabling is %s", got)
	}
}

func TestReconcilerFailsOnDemand(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.must(200, "PUT", "/admin/systems/reconciler/failures", map[string]any{"instanceId": "i-1", "reason": "no pods"})
	version := w.must(200, "POST", clusters, cluster("2.20.0"))["configurationVersion"]
	w.clock.advance(reconcileTime)
	got := w.must(200, "GET", fmt.Sprintf("%s/r-1/configs/%v/status", clusters, version), nil)
	if got["status"] != "error" || text(t, got, "failures", 0, "reason") != "no pods" {
		t.Errorf("cluster is %v", got)
	}
}

func TestReconcilerRefusesBadClusters(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for problem, config := range map[string]string{
		"empty":      "",
		"YAML":       "\t{",
		"context":    "current-context: x",
		"server":     strings.Replace(kubeconfig, "https://c.example.com", "", 1),
		"credential": strings.Replace(kubeconfig, "{token: canary-token}", "{}", 1),
	} {
		body := cluster("2.20.0")
		body["kubeconfig"] = config
		got := w.must(400, "POST", clusters, body)
		if !strings.Contains(text(t, got, "error"), problem) {
			t.Errorf("a kubeconfig with bad %s is answered with %v", problem, got)
		}
	}
	body := cluster(strings.Repeat("x", 100_001))
	w.must(413, "POST", clusters, body)
	w.must(400, "POST", clusters, `{"runtimeID":`)
	if _, ever := w.held("reconciler", "cluster"); ever != 0 {
		t.Errorf("%d clusters were made by bad requests", ever)
	}
}
