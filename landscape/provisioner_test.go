package landscape_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
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

func TestProvisioner_Runtime_IsCreatedAndRemoved(t *testing.T) {
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

	w.clock.Advance(clusterTime / 2)
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

	w.clock.Advance(clusterTime)
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
	w.clock.Advance(clusterTime)
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
	w.clock.Advance(clusterTime)
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
		t.Errorf("Provisioner holds %d runtimes of %d ever created, want 0 of 1", now, ever)
	}
}

const (
	upgradeQuery = `mutation($id: String!, $config: UpgradeShootInput!) { result: upgradeShoot(id: $id, config: $config) { id operation state } }`
	configQuery  = `query($id: String!) { result: runtimeStatus(id: $id) { lastOperationStatus { id }
  runtimeConfiguration { clusterConfig { autoScalerMin autoScalerMax kubernetesVersion } } } }`
)

func TestProvisioner_ShootUpgrade_KeepsOmittedValues(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := open(t, dir, newClock())
	op, _ := w.ask(provisionQuery, map[string]any{"config": runtimeInput("i-1", "c-1")})
	w.clock.Advance(clusterTime)
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

	// It progresses with the clock, without requests in between.
	w.close()
	w.clock.Advance(clusterTime / 2)
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

func TestProvisioner_FailedUpgrade_ChangesNothing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	op, _ := w.ask(provisionQuery, map[string]any{"config": runtimeInput("i-1", "c-1")})
	w.clock.Advance(clusterTime)
	id := map[string]any{"id": text(t, op, "runtimeID")}
	w.must(200, "PUT", "/admin/systems/provisioner/failures", map[string]any{"instanceId": "i-1", "operation": "UpgradeShoot", "message": "no quota"})
	op, _ = w.ask(upgradeQuery, map[string]any{"id": id["id"], "config": map[string]any{"gardenerConfig": map[string]any{"autoScalerMax": 9}}})
	w.clock.Advance(clusterTime)
	if got := w.operation(text(t, op, "id")); text(t, got, "state") != "Failed" || text(t, got, "lastError", "errMessage") != "no quota" {
		t.Errorf("the upgrade is %v", got)
	}
	got, _ := w.ask(configQuery, id)
	if at(t, got, "runtimeConfiguration", "clusterConfig", "autoScalerMax") != 20.0 {
		t.Errorf("cluster after the failed upgrade: %v", got)
	}
}

func TestProvisioner_Failure_AffectsOneInstance(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const failures = "/admin/systems/provisioner/failures"
	w.must(200, "PUT", failures, map[string]any{"instanceId": "i-bad", "message": "no quota"})
	bad, _ := w.ask(provisionQuery, map[string]any{"config": runtimeInput("i-bad", "c-1")})
	good, _ := w.ask(provisionQuery, map[string]any{"config": runtimeInput("i-good", "c-2")})
	w.clock.Advance(clusterTime)
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

func TestProvisioner_InvalidRequest_IsRejected(t *testing.T) {
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

// contractInput is an order in the format of 2023.
func contractInput(instance, shoot string) map[string]any {
	domain := shoot + ".example.com"
	return map[string]any{
		"runtimeInput": map[string]any{"name": "runtime-12345", "labels": map[string]any{
			"broker_instance_id": instance, "global_subaccount_id": "sub-1", "operator_grafanaUrl": "https://grafana." + domain,
		}},
		"clusterConfig": map[string]any{
			"administrators": []string{"ada@example.com"},
			"gardenerConfig": map[string]any{
				"name": shoot, "kubernetesVersion": "1.26.5", "provider": "azure", "targetSecret": "sb-azure-pool-001", "region": "westeurope",
				"machineType": "Standard_D4_v3", "diskType": "Standard_LRS", "volumeSizeGB": 50, "workerCidr": "10.250.0.0/16", "purpose": "development",
				"autoScalerMin": 3, "autoScalerMax": 20, "maxSurge": 1, "maxUnavailable": 0, "euAccess": false, "shootNetworkingFilterDisabled": false,
				"enableKubernetesVersionAutoUpdate": false, "enableMachineImageVersionAutoUpdate": false, "dnsConfig": map[string]any{"domain": domain},
				"oidcConfig": oidcInput(),
				"providerSpecificConfig": map[string]any{"azureConfig": map[string]any{
					"vnetCidr": "10.250.0.0/16", "enableNatGateway": true, "azureZones": []any{map[string]any{"name": 1, "cidr": "10.250.0.0/19"}},
				}},
			},
		},
	}
}

func oidcInput() map[string]any {
	return map[string]any{
		"clientID": "c", "issuerURL": "https://i.example.com", "groupsClaim": "groups", "signingAlgs": []string{"RS256"},
		"usernameClaim": "sub", "usernamePrefix": "-",
	}
}

// problems returns the violations of the Provisioner since the last call.
func (w *world) problems() []string {
	w.t.Helper()
	record := at(w.t, w.must(200, "GET", "/admin/systems/provisioner", nil), "violations")
	var found []string
	last, _ := at(w.t, record, "last").([]any)
	for _, v := range last {
		found = append(found, text(w.t, v, "problem"))
	}
	w.must(200, "DELETE", "/admin/systems/provisioner/violations", nil)
	return found
}

func TestProvisioner_CorrectRequests_CauseNoViolation(t *testing.T) {
	t.Parallel()
	w := setup(t)
	op, failure := w.order(contractInput("i-1", "c-1"))
	if failure != nil {
		t.Fatal(failure)
	}
	w.clock.Advance(clusterTime)
	_, failure = w.upgrade(text(t, op, "runtimeID"), map[string]any{
		"gardenerConfig": map[string]any{"machineType": "m", "oidcConfig": oidcInput(), "shootNetworkingFilterDisabled": true}, "administrators": []string{"b@example.com"},
	})
	if failure != nil {
		t.Fatal(failure)
	}
	if found := w.problems(); len(found) > 0 {
		t.Errorf("violations: %v", found)
	}
}

// order sends provisionRuntime with the headers of a client.
func (w *world) order(config map[string]any) (result, failure any) {
	w.t.Helper()
	return w.ask(provisionQuery, map[string]any{"config": config})
}

// upgrade sends upgradeShoot, which has no header sub-account.
func (w *world) upgrade(id string, config map[string]any) (result, failure any) {
	w.t.Helper()
	return w.askAs("ga-1", upgradeQuery, map[string]any{"id": id, "config": config})
}

func (w *world) askAs(tenant, query string, vars map[string]any) (result, failure any) {
	w.t.Helper()
	got := w.must(200, "POST", "/provisioner/graphql", map[string]any{"query": query, "variables": vars}, header("tenant", tenant))
	if errs, ok := got["errors"].([]any); ok {
		failure = errs[0]
	}
	return at(w.t, got, "data", "result"), failure
}

// A request that no correct client sends is recorded; refused reports whether the real server also rejects it.
func TestProvisioner_WrongOrders_AreViolations(t *testing.T) {
	t.Parallel()
	w := setup(t)
	gardener := func(c map[string]any) map[string]any {
		return at(t, c, "clusterConfig", "gardenerConfig").(map[string]any)
	}
	for want, test := range map[string]struct {
		refused bool
		spoil   func(c map[string]any)
	}{
		"dnsConfig: required":                     {false, func(c map[string]any) { delete(gardener(c), "dnsConfig") }},
		"oidcConfig: required":                    {false, func(c map[string]any) { delete(gardener(c), "oidcConfig") }},
		"shootNetworkingFilterDisabled: required": {false, func(c map[string]any) { delete(gardener(c), "shootNetworkingFilterDisabled") }},
		"euAccess: required":                      {false, func(c map[string]any) { delete(gardener(c), "euAccess") }},
		"purpose: required":                       {false, func(c map[string]any) { delete(gardener(c), "purpose") }},
		"administrators: required":                {false, func(c map[string]any) { delete(c["clusterConfig"].(map[string]any), "administrators") }},
		"runtimeInput.labels.broker_plan_id: unknown": {false, func(c map[string]any) {
			at(t, c, "runtimeInput", "labels").(map[string]any)["broker_plan_id"] = "p"
		}},
		"licenceType: must be TestDevelopmentAndDemo or absent": {false, func(c map[string]any) { gardener(c)["licenceType"] = "CUSTOMER" }},
		"workerCidr: must be 10.250.0.0/16 or /19":              {false, func(c map[string]any) { gardener(c)["workerCidr"] = "10.250.0.0/22" }},
		"machineImageVersion: needs machineImage":               {true, func(c map[string]any) { gardener(c)["machineImageVersion"] = "1.2" }},
		"diskType, volumeSizeGB: must be absent for openstack": {true, func(c map[string]any) {
			g := gardener(c)
			g["provider"] = "openstack"
			g["providerSpecificConfig"] = map[string]any{"openStackConfig": map[string]any{
				"zones": []string{"westeuropea"}, "floatingPoolName": "p", "cloudProfileName": "c", "loadBalancerProvider": "f5",
			}}
		}},
		"providerSpecificConfig: must have exactly one member, azureConfig": {true, func(c map[string]any) {
			gardener(c)["providerSpecificConfig"] = map[string]any{"gcpConfig": map[string]any{"zones": []string{"a"}}}
		}},
		"kymaConfig.components: must contain compass-runtime-agent": {true, func(c map[string]any) {
			c["kymaConfig"] = map[string]any{"version": "1.24.7", "components": []any{map[string]any{"component": "core", "namespace": "kyma-system"}}}
		}},
		"kymaConfig.components: must not be empty": {true, func(c map[string]any) {
			c["kymaConfig"] = map[string]any{"version": "1.24.7", "components": []any{}}
		}},
	} {
		order := contractInput("i", "c-"+fmt.Sprint(len(want)))
		test.spoil(order)
		_, failure := w.order(order)
		if (failure != nil) != test.refused {
			t.Errorf("%s: %v", want, failure)
		}
		if test.refused && at(t, failure, "extensions", "error_code") != 400.0 {
			t.Errorf("%s: %v", want, failure)
		}
		if found := w.problems(); !slices.Contains(found, want) {
			t.Errorf("%s: recorded %v", want, found)
		}
	}
}

// kymaInput is an order of 2020, with Kyma.
func kymaInput(instance string) map[string]any {
	return map[string]any{
		"runtimeInput": map[string]any{"name": "runtime-12345", "labels": map[string]any{
			"broker_instance_id": instance, "global_subaccount_id": "sub-1", "operator_lmsUrl": "https://kibana.t1.lms.example.com",
		}},
		"clusterConfig": map[string]any{"gardenerConfig": map[string]any{
			"kubernetesVersion": "1.16.9", "provider": "azure", "targetSecret": "sb-azure-pool-001", "region": "westeurope",
			"machineType": "Standard_D8_v3", "diskType": "Standard_LRS", "volumeSizeGB": 50, "workerCidr": "10.250.0.0/19", "purpose": "development",
			"autoScalerMin": 3, "autoScalerMax": 10, "maxSurge": 4, "maxUnavailable": 1,
			"enableKubernetesVersionAutoUpdate": false, "enableMachineImageVersionAutoUpdate": false,
			"providerSpecificConfig": map[string]any{"azureConfig": map[string]any{"vnetCidr": "10.250.0.0/19", "zones": []string{"1"}}},
		}},
		"kymaConfig": map[string]any{"version": "1.24.7", "configuration": []any{}, "components": []any{
			map[string]any{"component": "core", "namespace": "kyma-system"},
			map[string]any{"component": "compass-runtime-agent", "namespace": "compass-system"},
		}},
	}
}

const (
	provisionQuery2020 = `mutation($config: ProvisionRuntimeInput!) { result: provisionRuntime(config: $config) { id state runtimeID } }`
	statusQuery        = `query($id: String!) { result: runtimeOperationStatus(id: $id) { state %s } }`
)

// An order of 2020 lacks many members of one of 2023, and must have no newer member.
func TestProvisioner_OrderWithKyma_FollowsAPIOf2020(t *testing.T) {
	t.Parallel()
	w := setup(t)
	gardener := func(c map[string]any) map[string]any {
		return at(t, c, "clusterConfig", "gardenerConfig").(map[string]any)
	}
	azure := func(c map[string]any) map[string]any {
		return at(t, gardener(c), "providerSpecificConfig", "azureConfig").(map[string]any)
	}
	for want, test := range map[string]struct {
		refused bool
		spoil   func(c map[string]any)
	}{
		"name: unknown to the API of 2020":              {true, func(c map[string]any) { gardener(c)["name"] = "c-1" }},
		"dnsConfig: unknown to the API of 2020":         {true, func(c map[string]any) { gardener(c)["dnsConfig"] = map[string]any{"domain": "d"} }},
		"oidcConfig: unknown to the API of 2020":        {true, func(c map[string]any) { gardener(c)["oidcConfig"] = oidcInput() }},
		"euAccess: unknown to the API of 2020":          {true, func(c map[string]any) { gardener(c)["euAccess"] = false }},
		"exposureClassName: unknown to the API of 2020": {true, func(c map[string]any) { gardener(c)["exposureClassName"] = "e" }},
		"shootNetworkingFilterDisabled: unknown to the API of 2020": {true, func(c map[string]any) {
			gardener(c)["shootNetworkingFilterDisabled"] = false
		}},
		"administrators: unknown to the API of 2020": {true, func(c map[string]any) {
			c["clusterConfig"].(map[string]any)["administrators"] = []string{"a"}
		}},
		"diskType: required":     {true, func(c map[string]any) { delete(gardener(c), "diskType") }},
		"volumeSizeGB: required": {true, func(c map[string]any) { delete(gardener(c), "volumeSizeGB") }},
		"azureConfig.azureZones: unknown to the API of 2020": {true, func(c map[string]any) {
			azure(c)["azureZones"] = []any{map[string]any{"name": 1, "cidr": "10.250.0.0/19"}}
		}},
		"azureConfig.enableNatGateway: unknown to the API of 2020": {true, func(c map[string]any) { azure(c)["enableNatGateway"] = true }},
		"kymaConfig: profile: unknown to the API of 2020": {true, func(c map[string]any) {
			c["kymaConfig"].(map[string]any)["profile"] = "Production"
		}},
		"kymaConfig: conflictStrategy: unknown to the API of 2020": {true, func(c map[string]any) {
			at(t, c, "kymaConfig", "components", 0).(map[string]any)["conflictStrategy"] = "Replace"
		}},
		"providerSpecificConfig.azureConfig.zones: required": {false, func(c map[string]any) { delete(azure(c), "zones") }},
		"workerCidr: must be 10.250.0.0/19":                  {false, func(c map[string]any) { gardener(c)["workerCidr"] = "10.250.0.0/16" }},
		"runtimeInput.labels.operator_grafanaUrl: unknown": {false, func(c map[string]any) {
			at(t, c, "runtimeInput", "labels").(map[string]any)["operator_grafanaUrl"] = "https://grafana.d"
		}},
		"runtimeInput.labels.operator_lmsUrl: must be a host kibana": {false, func(c map[string]any) {
			at(t, c, "runtimeInput", "labels").(map[string]any)["operator_lmsUrl"] = "https://logs.d"
		}},
	} {
		order := kymaInput("i")
		test.spoil(order)
		_, failure := w.ask(provisionQuery2020, map[string]any{"config": order})
		if (failure != nil) != test.refused {
			t.Errorf("%s: %v", want, failure)
		}
		if found := w.problems(); !slices.Contains(found, want) {
			t.Errorf("%s: recorded %v", want, found)
		}
	}
}

func TestProvisioner_KymaOperation_HasNoLastError(t *testing.T) {
	t.Parallel()
	w := setup(t)
	if _, failure := w.order(kymaInput("i-1")); failure == nil {
		t.Error("an order that asks for the last error is accepted")
	}
	w.problems()
	op, failure := w.ask(provisionQuery2020, map[string]any{"config": kymaInput("i-1")})
	if failure != nil {
		t.Fatal(failure)
	}
	id := map[string]any{"id": text(t, op, "id")}
	if got, failure := w.askAs("ga-1", fmt.Sprintf(statusQuery, ""), id); failure != nil || text(t, got, "state") != "InProgress" {
		t.Errorf("%v, %v", got, failure)
	}
	if found := w.problems(); len(found) > 0 {
		t.Errorf("violations: %v", found)
	}
	if _, failure := w.askAs("ga-1", fmt.Sprintf(statusQuery, "lastError { reason }"), id); failure == nil {
		t.Error("a query of the last error is answered")
	}
	// The Runtime Provisioner chose the name of the Shoot.
	if name := text(t, w.shoots(), 0, "metadata", "name"); name != "c-"+text(t, op, "runtimeID")[:7] {
		t.Errorf("the Shoot is %s", name)
	}
}

func TestProvisioner_WrongUpgrades_AreViolations(t *testing.T) {
	t.Parallel()
	w := setup(t)
	op, _ := w.order(contractInput("i-1", "c-1"))
	id := text(t, op, "runtimeID")
	w.clock.Advance(clusterTime)
	for want, config := range map[string]map[string]any{
		"oidcConfig: required":                                                     {"shootNetworkingFilterDisabled": true},
		"shootNetworkingFilterDisabled: required":                                  {"oidcConfig": oidcInput()},
		"purpose: never sent by upgradeShoot":                                      {"purpose": "production"},
		"machineType: must not be empty":                                           {"machineType": ""},
		"kubernetesVersion: must not be empty":                                     {"kubernetesVersion": ""},
		"administrators: required, their absence removes all that the cluster has": {},
	} {
		_, failure := w.upgrade(id, map[string]any{"gardenerConfig": config})
		if refused := strings.HasSuffix(want, "empty"); (failure != nil) != refused {
			t.Errorf("%s: %v", want, failure)
		}
		if found := w.problems(); !slices.Contains(found, want) && want[:5] != "admin" {
			t.Errorf("%s: recorded %v", want, found)
		}
		w.clock.Advance(clusterTime)
	}
	_, failure := w.upgrade(id, map[string]any{"gardenerConfig": map[string]any{"providerSpecificConfig": map[string]any{
		"azureConfig": map[string]any{"vnetCidr": "10.250.0.0/19"},
	}}})
	if failure == nil || at(t, failure, "extensions", "error_code") != 400.0 {
		t.Errorf("another network is answered with %v", failure)
	}
}

func TestProvisioner_LowerVersion_KeepsShootVersion(t *testing.T) {
	t.Parallel()
	w := setup(t)
	op, _ := w.order(contractInput("i-1", "c-1"))
	id := text(t, op, "runtimeID")
	w.clock.Advance(clusterTime)
	_, failure := w.upgrade(id, map[string]any{
		"gardenerConfig": map[string]any{"kubernetesVersion": "1.9.1", "oidcConfig": oidcInput(), "shootNetworkingFilterDisabled": true}, "administrators": []string{"a"},
	})
	if failure != nil {
		t.Fatal(failure)
	}
	w.clock.Advance(clusterTime)
	if shoots := w.shoots(); text(t, shoots, 0, "spec", "kubernetes", "version") != "1.26.5" {
		t.Errorf("Gardener has %v", shoots)
	}
}

func TestProvisioner_FilterOmitted_IsDisabledAndKept(t *testing.T) {
	t.Parallel()
	w := setup(t)
	order := contractInput("i-1", "c-1")
	delete(at(t, order, "clusterConfig", "gardenerConfig").(map[string]any), "shootNetworkingFilterDisabled")
	op, _ := w.order(order)
	filter := func() any { return at(t, w.shoots(), 0, "spec", "extensions", 2, "disabled") }
	if filter() != true {
		t.Errorf("at creation: %v", filter())
	}
	for _, value := range []any{nil, false, nil} {
		w.clock.Advance(clusterTime)
		config := map[string]any{"oidcConfig": oidcInput()}
		if value != nil {
			config["shootNetworkingFilterDisabled"] = value
		}
		before := filter()
		if _, failure := w.upgrade(text(t, op, "runtimeID"), map[string]any{"gardenerConfig": config, "administrators": []string{"a"}}); failure != nil {
			t.Fatal(failure)
		}
		w.clock.Advance(clusterTime)
		if want := cmp.Or(value, before); filter() != want {
			t.Errorf("after an upgrade with %v: %v, want %v", value, filter(), want)
		}
	}
}

func TestProvisioner_OtherTenant_MovesRuntime(t *testing.T) {
	t.Parallel()
	w := setup(t)
	op, _ := w.order(contractInput("i-1", "c-1"))
	w.clock.Advance(clusterTime)
	if _, failure := w.askAs("ga-2", runtimeQuery, map[string]any{"id": text(t, op, "runtimeID")}); failure != nil {
		t.Errorf("a query of another tenant is answered with %v", failure)
	}
	held := w.must(200, "GET", "/admin/systems/provisioner/objects?kind=runtime", nil)
	if got := text(t, held, "data", 0, "tenant"); got != "ga-2" {
		t.Errorf("the runtime belongs to %s", got)
	}
	w.must(200, "POST", "/provisioner/graphql", map[string]any{"query": runtimeQuery, "variables": map[string]any{"id": "x"}}, header("tenant", ""))
	if found := w.problems(); !slices.Contains(found, "header tenant: required") {
		t.Errorf("without a tenant: recorded %v", found)
	}
}

func TestProvisioner_OtherFormat_IsViolation(t *testing.T) {
	t.Parallel()
	w := setup(t)
	body := map[string]any{"query": runtimeQuery, "variables": map[string]any{"id": "x"}}
	w.must(400, "POST", "/provisioner/graphql", body, header("tenant", "ga-1"), header("Content-Type", "text/plain"))
	w.must(400, "POST", "/provisioner/graphql", map[string]any{"query": runtimeQuery, "extra": 1}, header("tenant", "ga-1"))
	w.must(422, "POST", "/provisioner/graphql", map[string]any{"query": `query { result: runtimeStatus(id: "x") { nonsense } }`}, header("tenant", "ga-1"))
	w.must(200, "POST", "/provisioner/graphql", body, header("tenant", "ga-1"), header("Authorization", "Bearer x"))
	w.must(200, "POST", "/provisioner/graphql", body, header("tenant", "ga-1"), header("sub-account", "sub-1"))
	if found := w.problems(); len(found) != 5 {
		t.Errorf("recorded %q", found)
	}
}
