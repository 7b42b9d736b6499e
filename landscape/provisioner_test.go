package landscape_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const provisionQuery = `mutation($config: ProvisionRuntimeInput!) { result: provisionRuntime(config: $config) { ...op } }
fragment op on OperationStatus { id operation state message runtimeID lastError { errMessage reason component } }`

func runtimeInput(instance, shoot string) map[string]any {
	return map[string]any{
		"runtimeInput": map[string]any{"name": "runtime", "description": "", "labels": map[string]any{
			"broker_instance_id": instance, "global_subaccount_id": "sub-1", "operator_grafanaUrl": "https://grafana." + shoot + ".example.com",
		}},
		"clusterConfig": map[string]any{
			"administrators": []string{"ada@example.com"},
			"gardenerConfig": map[string]any{
				"name": shoot, "kubernetesVersion": "1.26.5", "provider": "azure", "targetSecret": "sb-azure-pool-001",
				"region": "westeurope", "machineType": "Standard_D4_v3", "workerCidr": "10.250.0.0/22", "autoScalerMin": 3, "autoScalerMax": 20,
				"maxSurge": 3, "maxUnavailable": 0,
				"providerSpecificConfig": map[string]any{"azureConfig": map[string]any{"vnetCidr": "10.250.0.0/22", "zones": []string{"1"}}},
			},
		},
	}
}

// ask sends a query to the Provisioner and returns its result and the first error.
func (w *world) ask(query string, vars map[string]any) (result, failure any) {
	w.t.Helper()
	got := w.must(200, "POST", "/provisioner/graphql", map[string]any{"query": query, "variables": vars}, header("tenant", "ga-1"), header("sub-account", "sub-1"))
	if errs, ok := got["errors"].([]any); ok {
		failure = errs[0]
	}
	return at(w.t, got, "data", "result"), failure
}

func (w *world) operation(id string) any {
	w.t.Helper()
	got, failure := w.ask(`query($id: String!) { result: runtimeOperationStatus(id: $id) { state operation lastError { errMessage reason component } } }`, map[string]any{"id": id})
	if failure != nil {
		w.t.Fatal(failure)
	}
	return got
}

const runtimeQuery = `query($id: String!) { result: runtimeStatus(id: $id) { lastOperationStatus { state }
  runtimeConfiguration { kubeconfig clusterConfig { name seed providerSpecificConfig { vnetCidr } } } } }`

func (w *world) directed(instance string) []any {
	w.t.Helper()
	query := fmt.Sprintf(`query { result: runtimes(filter: {key: "broker_instance_id", query: "\"%s\""}) { data { id labels } } }`, instance)
	got := w.must(200, "POST", "/director/graphql", map[string]any{"query": query}, w.clientToken("/director/oauth2/token", "keb"), header("tenant", "ga-1"))
	return at(w.t, got, "data", "result", "data").([]any)
}

func (w *world) shoots() []any {
	w.t.Helper()
	got := w.must(200, "GET", "/k8s/gardener/apis/core.gardener.cloud/v1beta1/namespaces/garden-kyma/shoots", nil, bearer("keb"))
	return at(w.t, got, "items").([]any)
}

func TestRuntimeFromCradleToGrave(t *testing.T) {
	t.Parallel()
	w := setup(t)
	op, failure := w.ask(provisionQuery, map[string]any{"config": runtimeInput("i-1", "c-1")})
	if failure != nil {
		t.Fatal(failure)
	}
	if text(t, op, "state") != "InProgress" || text(t, op, "operation") != "ProvisionNoInstall" {
		t.Errorf("a new operation is %v", op)
	}
	id := map[string]any{"id": text(t, op, "runtimeID")}

	found := w.directed("i-1")
	if len(found) != 1 || text(t, found, 0, "id") != id["id"] || text(t, found, 0, "labels", "global_subaccount_id") != "sub-1" {
		t.Errorf("Director has %v", found)
	}
	if got := w.directed("i-"); len(got) != 0 {
		t.Errorf("Director finds %v for another instance", got)
	}
	shoots := w.shoots()
	if len(shoots) != 1 || text(t, shoots, 0, "spec", "secretBindingName") != "sb-azure-pool-001" ||
		text(t, shoots, 0, "metadata", "annotations", "kcp.provisioner.kyma-project.io/runtime-id") != id["id"] {
		t.Errorf("Gardener has %v", shoots)
	}

	w.clock.advance(clusterTime / 2)
	if got := text(t, w.operation(text(t, op, "id")), "state"); got != "InProgress" {
		t.Errorf("state half-way is %s", got)
	}
	status, _ := w.ask(runtimeQuery, id)
	if got := at(t, status, "runtimeConfiguration", "kubeconfig"); got != nil {
		t.Errorf("there is a kubeconfig before the cluster: %v", got)
	}
	_, busy := w.ask(`mutation($id: String!) { result: deprovisionRuntime(id: $id) }`, id)
	if busy == nil || at(t, busy, "extensions", "error_code") != 400.0 {
		t.Errorf("a second operation at the same time is answered with %v", busy)
	}

	w.clock.advance(clusterTime)
	if got := text(t, w.operation(text(t, op, "id")), "state"); got != "Succeeded" {
		t.Errorf("state at the end is %s", got)
	}
	status, _ = w.ask(runtimeQuery, id)
	if text(t, status, "runtimeConfiguration", "clusterConfig", "providerSpecificConfig", "vnetCidr") != "10.250.0.0/22" {
		t.Errorf("runtime status is %v", status)
	}
	kubeconfig := text(t, status, "runtimeConfiguration", "kubeconfig")
	if !strings.Contains(kubeconfig, w.url+"/k8s/runtimes/"+id["id"].(string)) {
		t.Errorf("kubeconfig points elsewhere: %s", kubeconfig)
	}

	removal, failure := w.ask(`mutation($id: String!) { result: deprovisionRuntime(id: $id) }`, id)
	if failure != nil {
		t.Fatal(failure)
	}
	w.clock.advance(clusterTime)
	if got := w.operation(removal.(string)); text(t, got, "state") != "Succeeded" || text(t, got, "operation") != "DeprovisionNoInstall" {
		t.Errorf("removal is %v", got)
	}
	if shoots := w.shoots(); len(shoots) != 0 {
		t.Errorf("Gardener still has %v", shoots)
	}
	if found := w.directed("i-1"); len(found) != 0 {
		t.Errorf("Director still has %v", found)
	}
	left, failure := w.ask(runtimeQuery, id)
	if failure != nil || text(t, left, "lastOperationStatus", "state") != "Succeeded" || at(t, left, "runtimeConfiguration", "kubeconfig") != nil {
		t.Errorf("a removed runtime is answered with %v, %v", left, failure)
	}
	again, failure := w.ask(`mutation($id: String!) { result: deprovisionRuntime(id: $id) }`, id)
	if failure != nil {
		t.Fatalf("a second removal is answered with %v", failure)
	}
	w.clock.advance(clusterTime)
	if got := w.operation(again.(string)); text(t, got, "state") != "Succeeded" || text(t, got, "operation") != "DeprovisionNoInstall" {
		t.Errorf("the second removal is %v", got)
	}
	_, unknown := w.ask(runtimeQuery, map[string]any{"id": "unknown"})
	if at(t, unknown, "extensions", "error_reason") != "err_db_not_found" || at(t, unknown, "extensions", "error_code") != 2.0 ||
		at(t, unknown, "extensions", "error_component") != "db - provisioner" {
		t.Errorf("an unknown runtime is answered with %v", unknown)
	}
	w.must(503, "GET", "/k8s/runtimes/"+id["id"].(string)+"/api/v1/namespaces", nil, bearer("any"))
	if now, ever := w.held("provisioner", "runtime"); now != 0 || ever != 1 {
		t.Errorf("Provisioner holds %d runtimes of %d ever made, want 0 of 1", now, ever)
	}
}

const (
	upgradeQuery = `mutation($id: String!, $config: UpgradeShootInput!) { result: upgradeShoot(id: $id, config: $config) { id operation state } }`
	configQuery  = `query($id: String!) { result: runtimeStatus(id: $id) { lastOperationStatus { id }
  runtimeConfiguration { clusterConfig { autoScalerMin autoScalerMax kubernetesVersion } } } }`
)

func TestShootUpgradeTakesTimeAndKeepsWhatItDoesNotName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := open(t, dir, &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
	op, _ := w.ask(provisionQuery, map[string]any{"config": runtimeInput("i-1", "c-1")})
	w.clock.advance(clusterTime)
	id := map[string]any{"id": text(t, op, "runtimeID")}
	upgrade := map[string]any{"id": id["id"], "config": map[string]any{
		"gardenerConfig": map[string]any{"autoScalerMax": 9, "kubernetesVersion": "1.27.1"}, "administrators": []string{"bob@example.com"},
	}}
	op, failure := w.ask(upgradeQuery, upgrade)
	if failure != nil || text(t, op, "state") != "InProgress" || text(t, op, "operation") != "UpgradeShoot" {
		t.Fatalf("an upgrade is answered with %v, %v", op, failure)
	}
	if _, busy := w.ask(upgradeQuery, upgrade); busy == nil || at(t, busy, "extensions", "error_code") != 400.0 {
		t.Errorf("a second upgrade at the same time is answered with %v", busy)
	}
	got, _ := w.ask(configQuery, id)
	if at(t, got, "lastOperationStatus", "id") != text(t, op, "id") {
		t.Errorf("the last operation of the runtime is %v", got)
	}
	if config := at(t, got, "runtimeConfiguration", "clusterConfig"); at(t, config, "autoScalerMax") != 20.0 {
		t.Errorf("cluster before the upgrade has ended: %v", config)
	}

	// It goes on by the clock although nobody was there to see it.
	w.close()
	w.clock.advance(clusterTime / 2)
	w = open(t, dir, w.clock)
	if got := text(t, w.operation(text(t, op, "id")), "state"); got != "Succeeded" {
		t.Errorf("state at the end is %s", got)
	}
	got, _ = w.ask(configQuery, id)
	config := at(t, got, "runtimeConfiguration", "clusterConfig")
	if at(t, config, "autoScalerMax") != 9.0 || at(t, config, "autoScalerMin") != 3.0 || at(t, config, "kubernetesVersion") != "1.27.1" {
		t.Errorf("cluster after the upgrade: %v", config)
	}
	if shoots := w.shoots(); text(t, shoots, 0, "spec", "kubernetes", "version") != "1.27.1" {
		t.Errorf("Gardener has %v", shoots)
	}
	held := w.must(200, "GET", "/admin/systems/provisioner/objects?kind=runtime", nil)
	if got := at(t, held, "data", 0, "administrators", 0); got != "bob@example.com" {
		t.Errorf("the administrator is %v", got)
	}
}

func TestFailedShootUpgradeLeavesTheClusterAsItWas(t *testing.T) {
	t.Parallel()
	w := setup(t)
	op, _ := w.ask(provisionQuery, map[string]any{"config": runtimeInput("i-1", "c-1")})
	w.clock.advance(clusterTime)
	id := map[string]any{"id": text(t, op, "runtimeID")}
	w.must(200, "PUT", "/admin/systems/provisioner/failures", map[string]any{"instanceId": "i-1", "operation": "UpgradeShoot", "message": "no quota"})
	op, _ = w.ask(upgradeQuery, map[string]any{"id": id["id"], "config": map[string]any{"gardenerConfig": map[string]any{"autoScalerMax": 9}}})
	w.clock.advance(clusterTime)
	if got := w.operation(text(t, op, "id")); text(t, got, "state") != "Failed" || text(t, got, "lastError", "errMessage") != "no quota" {
		t.Errorf("the upgrade is %v", got)
	}
	got, _ := w.ask(configQuery, id)
	if at(t, got, "runtimeConfiguration", "clusterConfig", "autoScalerMax") != 20.0 {
		t.Errorf("cluster after the failed upgrade: %v", got)
	}
}

func TestOperationFailsOnDemandForOneInstance(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const failures = "/admin/systems/provisioner/failures"
	w.must(200, "PUT", failures, map[string]any{"instanceId": "i-bad", "message": "no quota"})
	bad, _ := w.ask(provisionQuery, map[string]any{"config": runtimeInput("i-bad", "c-1")})
	good, _ := w.ask(provisionQuery, map[string]any{"config": runtimeInput("i-good", "c-2")})
	w.clock.advance(clusterTime)
	got := w.operation(text(t, bad, "id"))
	if text(t, got, "state") != "Failed" || text(t, got, "lastError", "errMessage") != "no quota" || text(t, got, "lastError", "reason") == "" {
		t.Errorf("operation of i-bad is %v", got)
	}
	if got := w.operation(text(t, good, "id")); text(t, got, "state") != "Succeeded" {
		t.Errorf("operation of i-good is %v", got)
	}
	w.must(400, "PUT", failures, map[string]any{"message": "x"})
	w.must(400, "PUT", failures, map[string]any{"instanceId": "x", "operation": "Explode"})
	w.must(400, "PUT", "/admin/systems/avs/failures", map[string]any{"instanceId": "x"})
	w.must(204, "DELETE", failures, nil)
	if got := w.must(200, "GET", failures, nil); at(t, got, "count") != 0.0 {
		t.Errorf("failures after DELETE: %v", got)
	}
}

func TestProvisionerRefusesBadRequests(t *testing.T) {
	t.Parallel()
	w := setup(t)
	tenant := header("tenant", "ga-1")
	post := func(status int, query string, vars any, options ...option) string {
		t.Helper()
		got := w.must(status, "POST", "/provisioner/graphql", map[string]any{"query": query, "variables": vars}, options...)
		return text(t, got, "errors", 0, "message")
	}
	if got := post(422, `query { result: runtimeStatus(id: "x") { nonsense } }`, nil, tenant); !strings.Contains(got, "nonsense") {
		t.Errorf("an unknown field is answered with %q", got)
	}
	incomplete := runtimeInput("i", "c")
	delete(at(t, incomplete, "clusterConfig", "gardenerConfig").(map[string]any), "machineType")
	if got := post(422, provisionQuery, map[string]any{"config": incomplete}, tenant); !strings.Contains(got, "defined") {
		t.Errorf("a missing machine type is answered with %q", got)
	}
	twoProviders := runtimeInput("i", "c")
	specific := at(t, twoProviders, "clusterConfig", "gardenerConfig", "providerSpecificConfig").(map[string]any)
	specific["gcpConfig"] = map[string]any{"zones": []string{"a"}}
	if got := post(200, provisionQuery, map[string]any{"config": twoProviders}, tenant); !strings.Contains(got, "exactly one") {
		t.Errorf("two providers are answered with %q", got)
	}
	if got := post(200, `query { result: runtimeStatus(id: "x") { __typename } }`, nil); !strings.Contains(got, "tenant") {
		t.Errorf("a missing tenant is answered with %q", got)
	}
	if _, failure := w.ask(provisionQuery, map[string]any{"config": runtimeInput("i-1", "c-1")}); failure != nil {
		t.Fatal(failure)
	}
	if _, failure := w.ask(provisionQuery, map[string]any{"config": runtimeInput("i-2", "c-1")}); failure == nil {
		t.Error("two clusters have one shoot name")
	}
	w.must(400, "POST", "/provisioner/graphql", `{"query":`, tenant)
	w.must(405, "GET", "/provisioner/graphql", nil, tenant)
	if _, ever := w.held("provisioner", "runtime"); ever != 1 {
		t.Errorf("%d runtimes were made, want the one good one", ever)
	}
}
