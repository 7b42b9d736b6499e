package landscape_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kubeconfig returns a kubeconfig of the runtime at server.
func kubeconfig(server, token string) string {
	return `
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "` + server + `"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: ` + token + `}}]
`
}

// cluster is the Reconciler's input for the runtime r-1, whose cluster is that of the control plane.
func (w *world) cluster(version string) map[string]any {
	return map[string]any{
		"runtimeID": "r-1", "runtimeInput": map[string]any{"name": "runtime", "description": ""},
		"kubeconfig": kubeconfig(w.url+"/k8s/control-plane", "keb"),
		"metadata": map[string]any{
			"globalAccountID": "ga-1", "subAccountID": "sa-1", "serviceID": "s-1", "servicePlanID": "p-1", "servicePlanName": "azure",
			"shootName": "c-1", "instanceID": "i-1", "region": "",
		},
		"kymaConfig": map[string]any{
			"version": version, "profile": "Production", "administrators": []any{}, "components": []any{map[string]any{
				"component": "istio", "namespace": "istio-system", "URL": "", "version": "",
				"configuration": []any{map[string]any{"key": "k", "value": "canary-value", "secret": true}},
			}},
		},
	}
}

const clusters = "/reconciler/v1/clusters"

func (w *world) reconciled(version any) string {
	w.t.Helper()
	return text(w.t, w.must(200, "GET", fmt.Sprintf("%s/r-1/configs/%v/status", clusters, version), nil), "status")
}

func TestReconciler_Clock_MakesClusterReady(t *testing.T) {
	t.Parallel()
	w := setup(t)
	first := w.must(200, "POST", clusters, w.cluster("2.20.0"))
	version := at(t, first, "configurationVersion")
	if !strings.HasPrefix(text(t, first, "statusURL"), w.url+clusters) {
		t.Errorf("status URL is %v", first["statusURL"])
	}
	for _, want := range []string{"reconcile_pending", "reconciling", "ready"} {
		if got := w.reconciled(version); got != want {
			t.Errorf("status is %s, want %s", got, want)
		}
		w.clock.Advance(reconcileTime / 2)
	}

	again := w.must(200, "PUT", clusters, w.cluster("2.20.0"))
	if again["configurationVersion"] != version || again["clusterVersion"] != first["clusterVersion"] || again["status"] != "reconcile_pending" {
		t.Errorf("the same cluster again is %v, first it was %v", again, first)
	}
	newer := w.must(200, "POST", clusters, w.cluster("2.21.0"))
	if newer["configurationVersion"] == version || newer["clusterVersion"] != first["clusterVersion"] {
		t.Errorf("another Kyma version is %v, first it was %v", newer, first)
	}
	if now, ever := w.held("reconciler", "cluster"); now != 1 || ever != 1 {
		t.Errorf("Reconciler holds %d clusters of %d ever created, want 1 of 1", now, ever)
	}
	w.must(404, "GET", clusters+"/r-1/configs/999/status", nil)
	changes := w.must(200, "GET", clusters+"/r-1/statusChanges?offset=168h", nil)
	if got := text(t, changes, "statusChanges", 0, "status"); got != "reconcile_pending" {
		t.Errorf("first status change is %s", got)
	}
}

func TestReconciler_EachVersion_HasAStatus(t *testing.T) {
	t.Parallel()
	w := setup(t)
	first := w.must(200, "POST", clusters, w.cluster("2.20.0"))["configurationVersion"]
	w.clock.Advance(reconcileTime)
	second := w.must(200, "POST", clusters, w.cluster("2.21.0"))["configurationVersion"]
	if got := w.reconciled(first); got != "ready" {
		t.Errorf("the first version is %s, it was ready before the second one came", got)
	}
	if got := w.reconciled(second); got != "reconcile_pending" {
		t.Errorf("the second version is %s", got)
	}
	w.clock.Advance(reconcileTime)
	if got := w.reconciled(second); got != "ready" {
		t.Errorf("at the end the second version is %s", got)
	}
	if got := text(t, w.must(200, "GET", clusters+"/r-1/status", nil), "status"); got != "ready" {
		t.Errorf("at the end the cluster is %s", got)
	}
}

func TestReconciler_DeletedCluster_IsRemoved(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.must(404, "DELETE", clusters+"/r-1", nil)
	w.must(200, "POST", clusters, w.cluster("2.20.0"))
	got := w.must(200, "DELETE", clusters+"/r-1", nil)
	if got["status"] != "delete_pending" {
		t.Errorf("status after DELETE is %v", got["status"])
	}
	w.clock.Advance(reconcileTime / 4)
	if got := text(t, w.must(200, "GET", clusters+"/r-1/status", nil), "status"); got != "deleting" {
		t.Errorf("status on the way is %s", got)
	}
	w.clock.Advance(reconcileTime / 4)
	w.must(404, "GET", clusters+"/r-1/status", nil)
	if now, _ := w.held("reconciler", "cluster"); now != 0 {
		t.Errorf("Reconciler still holds %d clusters", now)
	}
}

func TestReconciler_DisabledCluster_IsNotReconciled(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.must(200, "POST", clusters, w.cluster("2.20.0"))
	w.must(200, "PUT", clusters+"/r-1/status", map[string]any{"status": "reconcile_disabled"})
	got := w.must(200, "POST", clusters, w.cluster("2.21.0"))
	if got["status"] != "reconcile_disabled" {
		t.Errorf("status is %v", got["status"])
	}
	w.must(400, "PUT", clusters+"/r-1/status", map[string]any{"status": "tired"})
	w.must(200, "PUT", clusters+"/r-1/status", map[string]any{"status": "reconcile_pending"})
	w.clock.Advance(reconcileTime)
	if got := text(t, w.must(200, "GET", clusters+"/r-1/status", nil), "status"); got != "ready" {
		t.Errorf("status after enabling is %s", got)
	}
}

func TestReconciler_Failure_EndsInStatus(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.must(200, "PUT", "/admin/systems/reconciler/failures", map[string]any{"instanceId": "i-1", "reason": "no pods"})
	version := w.must(200, "POST", clusters, w.cluster("2.20.0"))["configurationVersion"]
	w.clock.Advance(reconcileTime)
	got := w.must(200, "GET", fmt.Sprintf("%s/r-1/configs/%v/status", clusters, version), nil)
	if got["status"] != "error" || text(t, got, "failures", 0, "reason") != "no pods" {
		t.Errorf("cluster is %v", got)
	}
}

func TestReconciler_KubeconfigIsUnusable_Answers400(t *testing.T) {
	t.Parallel()
	w := setup(t)
	valid := kubeconfig(w.url+"/k8s/control-plane", "keb")
	for problem, config := range map[string]string{
		"empty":      " ",
		"YAML":       "\t{",
		"context":    "current-context: x",
		"server":     kubeconfig("", "keb"),
		"credential": strings.Replace(valid, "{token: keb}", "{}", 1),
		"reached":    kubeconfig("http://127.0.0.1:1", "keb"),
		"401":        kubeconfig(w.url+"/k8s/control-plane", "wrong"),
	} {
		body := w.cluster("2.20.0")
		body["kubeconfig"] = config
		got := w.must(400, "POST", clusters, body)
		if !strings.Contains(text(t, got, "error"), problem) {
			t.Errorf("a kubeconfig with bad %s is answered with %v", problem, got)
		}
	}
	if _, ever := w.held("reconciler", "cluster"); ever != 0 {
		t.Errorf("%d clusters were made by bad requests", ever)
	}
	// An unavailable cluster of a customer is not a violation.
	if broken := w.violations("reconciler"); len(broken) != 0 {
		t.Errorf("violations: %v", broken)
	}
}

func TestReconciler_PayloadBreaksContract_IsRecorded(t *testing.T) {
	t.Parallel()
	w := setup(t)
	component := func(body map[string]any) map[string]any {
		return at(t, body, "kymaConfig", "components", 0).(map[string]any)
	}
	var want []string
	for problem, spoil := range map[string]func(body map[string]any){
		"body: larger than 100000 bytes":                             func(body map[string]any) { body["runtimeID"] = strings.Repeat("x", 100_000) },
		"runtimeInput: required: description":                        func(body map[string]any) { delete(body["runtimeInput"].(map[string]any), "description") },
		"kymaConfig.components.0: required: URL":                     func(body map[string]any) { delete(component(body), "URL") },
		"kymaConfig.components.0: required: version":                 func(body map[string]any) { delete(component(body), "version") },
		"kymaConfig.components.0: unknown: sourceURL":                func(body map[string]any) { component(body)["sourceURL"] = "" },
		"metadata: required: region":                                 func(body map[string]any) { delete(body["metadata"].(map[string]any), "region") },
		"kymaConfig.administrators: must be array, not null":         func(body map[string]any) { body["kymaConfig"].(map[string]any)["administrators"] = nil },
		"kymaConfig.profile: must be one of [Evaluation Production]": func(body map[string]any) { body["kymaConfig"].(map[string]any)["profile"] = "Test" },
		"kymaConfig.components: the value of k of istio must be boolean": func(body map[string]any) {
			component(body)["configuration"] = []any{map[string]any{"key": "k", "value": "false", "secret": false}}
		},
		"kymaConfig.components: the value of global.tracing.enabled of istio must be boolean": func(body map[string]any) {
			component(body)["configuration"] = []any{map[string]any{"key": "global.tracing.enabled", "value": "yes", "secret": false}}
		},
	} {
		body := w.cluster("2.20.0")
		spoil(body)
		w.must(400, "POST", clusters, body)
		want = append(want, problem)
	}
	slices.Sort(want)
	got := w.violations("reconciler")
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
	if _, ever := w.held("reconciler", "cluster"); ever != 0 {
		t.Errorf("%d clusters were made by bad requests", ever)
	}
}
