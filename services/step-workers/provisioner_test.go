package stepworkers_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/keb/landscape"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// planOnProvider is one row of docs/contracts/runtime-provisioner.md#values-of-a-plan.
type planOnProvider struct{ plan, provider, region string }

func (p planOnProvider) String() string {
	if p.plan == p.provider {
		return p.plan
	}
	return p.plan + "_" + p.provider
}

var planRows = []planOnProvider{
	{"azure", "azure", "eastus"},
	{"azure_lite", "azure", "eastus"},
	{"trial", "azure", "eastus"},
	{"free", "azure", "eastus"},
	{"aws", "aws", "eu-central-1"},
	{"preview", "aws", "eu-central-1"},
	{"trial", "aws", "eu-west-1"},
	{"free", "aws", "eu-central-1"},
	{"gcp", "gcp", "europe-west3"},
	{"trial", "gcp", "europe-west3"},
	{"openstack", "openstack", "eu-de-2"},
}

// orderOf returns an order of a plan that contains only what the broker always stores.
func (w *world) orderOf(p planOnProvider) workertest.Operation {
	op := w.order()
	op.Plan = event.Plan{ID: "id of " + p.plan, Name: p.plan}
	op.Runtime.Provider, op.Runtime.Region = p.provider, p.region
	op.Parameters = map[string]any{"name": "demo", "administrators": []string{"a@example.com"}, "oidc": op.Parameters.(map[string]any)["oidc"]}
	return op
}

// upgraded runs an update or an upgrade of the cluster to its end, and compares its requests, except for status checks.
func (w *world) upgraded(golden, step string, op workertest.Operation) workertest.Operation {
	w.t.Helper()
	w.door.requests = nil
	op = w.all([]string{step}, op)
	w.golden(golden, "/provisioner")
	return w.all([]string{"Check_Runtime"}, op)
}

func TestProvisioner_EveryPlan_SendsItsGoldenRequests(t *testing.T) {
	for _, p := range planRows {
		t.Run(p.String(), func(t *testing.T) {
			w := newWorld(t)
			op := w.all([]string{"Resolve_Target_Secret"}, w.orderOf(p))
			// The choice of the account is random.
			w.named[saved[map[string]any](t, op, "hyperscaler")["targetSecret"].(string)] = "SECRET"
			op = w.all([]string{"Create_Runtime_Without_Kyma"}, op)
			w.golden("provisioner_"+p.String()+"_provision", "/provisioner")
			op = w.all([]string{"Check_Runtime"}, op)
			w.named[saved[provisioner.Details](t, op, provisioner.Name).RuntimeID] = "RUNTIME"

			update := w.later(op, event.Update, "u-1")
			update.Parameters, update.Runtime = op.Parameters, op.Runtime
			update.Update = &event.Changes{LicenseType: true}
			update.Context.LicenseType = "CUSTOMER"
			op = w.upgraded("provisioner_"+p.String()+"_update_context", "Upgrade_Shoot", update)

			upgrade := w.later(op, event.UpgradeCluster, "c-1")
			upgrade.Parameters, upgrade.Runtime = op.Parameters, op.Runtime
			upgrade.Upgrade = &event.Upgrade{OrchestrationID: "o-1", KubernetesVersion: "1.34.1", MachineImage: "gardenlinux", MachineImageVersion: "934.8.0"}
			op = w.upgraded("provisioner_"+p.String()+"_upgradeCluster", "Upgrade_Cluster", upgrade)

			w.door.requests = nil
			w.all([]string{"Remove_Runtime"}, deprovision(op))
			w.golden("provisioner_"+p.String()+"_deprovision", "/provisioner")
		})
	}
}

func TestProvisioner_EveryKindOfUpdate_SendsItsGoldenRequest(t *testing.T) {
	w := newWorld(t)
	op := w.all(provisioning, w.order())
	w.named[saved[provisioner.Details](t, op, provisioner.Name).RuntimeID] = "RUNTIME"
	for _, kind := range []struct {
		name    string
		changes map[string]any
	}{
		{"machineType", map[string]any{"machineType": "Standard_D8_v3"}},
		{"autoScaler", map[string]any{"autoScalerMin": 4, "autoScalerMax": 9}},
		{"rollingUpdate", map[string]any{"maxSurge": 3, "maxUnavailable": 1}},
		{"administrators", map[string]any{"administrators": []string{"b@example.com", "c@example.com"}}},
		{"oidc", map[string]any{"oidc": map[string]any{
			"clientID": "c2", "issuerURL": "https://issuer.example.com", "groupsClaim": "groups", "signingAlgs": []string{"RS256"},
			"usernameClaim": "sub", "usernamePrefix": "-",
		}}},
		{"credentials", nil},
	} {
		update := w.later(op, event.Update, "u-"+kind.name)
		parameters := maps.Clone(update.Parameters.(map[string]any))
		maps.Copy(parameters, kind.changes)
		update.Parameters, update.Update = parameters, &event.Changes{Credentials: []string{event.CredentialsServiceManager}}
		if kind.changes != nil {
			raw, err := json.Marshal(kind.changes)
			require.NoError(t, err)
			update.Update = &event.Changes{Parameters: raw}
		}
		op = w.upgraded("provisioner_azure_update_"+kind.name, "Upgrade_Shoot", update)
	}
}

// A cluster keeps its administrators in updates and upgrades without administrators.
func TestUpdateAndUpgrade_OtherChanges_KeepTheAdministrators(t *testing.T) {
	w := newWorld(t)
	order := w.order()
	order.Parameters.(map[string]any)["administrators"] = []string{"a@example.com", "b@example.com"}
	op := w.all(provisioning, order)
	want := []string{"a@example.com", "b@example.com"}
	equal(t, "after provisioning", want, w.administrators(op))
	update := w.update(op, "u-1")
	update.Parameters = order.Parameters
	update.Update.Parameters = []byte(`{"machineType":"Standard_D8_v3"}`)
	op = w.all(updating, update)
	equal(t, "after an update of the machine type", want, w.administrators(op))
	upgrade := w.upgrade(op, event.UpgradeCluster, "c-1")
	upgrade.Parameters = order.Parameters
	op = w.all(upgradingCluster, upgrade)
	equal(t, "after an upgrade of the cluster", want, w.administrators(op))
	fewer := w.update(op, "u-2")
	fewer.Parameters = maps.Clone(order.Parameters.(map[string]any))
	fewer.Parameters.(map[string]any)["administrators"] = []string{"c@example.com"}
	fewer.Update.Parameters = []byte(`{"administrators":["c@example.com"]}`)
	op = w.all(updating, fewer)
	equal(t, "after an update of the administrators", []string{"c@example.com"}, w.administrators(op))
}

// administrators returns the administrators in the runtime itself.
func (w *world) administrators(op workertest.Operation) []string {
	w.t.Helper()
	bindings, err := w.runtime(op).List(w.t.Context(), kube.ClusterRoleBindings, "", "reconciler.kyma-project.io/managed-by=reconciler,app=kyma")
	require.NoError(w.t, err)
	var users []string
	for _, b := range bindings {
		subjects, _, _ := unstructured.NestedSlice(b.Object, "subjects")
		for _, s := range subjects {
			if subject := s.(map[string]any); subject["kind"] == "User" {
				users = append(users, subject["name"].(string))
			}
		}
	}
	slices.Sort(users)
	return users
}

// dirty returns the number of accounts of a tenant that wait for their cleaning.
func (w *world) dirty(tenant string) int {
	w.t.Helper()
	client, err := kube.Open("gardener", kube.Config{URL: w.url + "/k8s/gardener", Token: "keb"}, extclient.Deps{})
	require.NoError(w.t, err)
	defer client.Close()
	bindings, err := client.List(w.t.Context(), kube.SecretBindings, "garden-kyma", "dirty=true,tenantName="+tenant)
	require.NoError(w.t, err)
	return len(bindings)
}

// The Director is down during the whole test.
func TestDirectorOutage_ProvisionAndDeprovision_Succeed(t *testing.T) {
	w := newWorld(t)
	w.door.fault.Store(&fault{prefix: "/director", status: http.StatusServiceUnavailable})
	w.all(deprovisioning, deprovision(w.all(provisioning, w.order())))
	for _, r := range w.door.requests {
		if strings.HasPrefix(r.Path, "/director") {
			t.Errorf("%s %s was called", r.Request, r.Path)
		}
	}
}

// With the look-up enabled, the Director returns the runtime of an order whose answer was lost.
func TestDirectorLookUp_LostOrder_FindsTheRuntime(t *testing.T) {
	w := newWorldWith(t, landscape.Config{DirectorLookUp: true}, nil)
	w.environment["KEB_DIRECTOR_URL"], w.environment["KEB_DIRECTOR_TOKEN_URL"] = w.url+"/director/graphql", w.url+"/director/oauth2/token"
	w.build(w.url)
	op := w.all([]string{"Resolve_Target_Secret"}, w.order())
	w.run("Create_Runtime_Without_Kyma", op)
	calls := w.calls(func() { op = w.all([]string{"Create_Runtime_Without_Kyma"}, op) })
	if len(asked(calls, "runtimes")) != 1 || len(asked(calls, "provisionRuntime")) != 0 {
		t.Errorf("%d look-ups and %d orders", len(asked(calls, "runtimes")), len(asked(calls, "provisionRuntime")))
	}
	w.made("provisioner/runtime", 1)
	w.all([]string{"Check_Runtime", "Remove_Runtime", "Check_Runtime_Removal"}, deprovision(op))
}

// The worker is killed between the order and its answer. The order is repeated and rejected, and the runtime is found by its Shoot.
func TestLostOrder_IsFoundByItsShoot(t *testing.T) {
	w := newWorld(t)
	op := w.all([]string{"Resolve_Target_Secret"}, w.order())
	first := w.run("Create_Runtime_Without_Kyma", op)
	second := w.run("Create_Runtime_Without_Kyma", op)
	got := saved[provisioner.Details](t, second.Then(), provisioner.Name)
	if want := saved[provisioner.Details](t, first.Then(), provisioner.Name); got != want {
		t.Errorf("first %+v, second %+v", want, got)
	}
	w.made("provisioner/runtime", 1)
}

// The worker was killed between the order and its answer, and then the instance was deleted.
func TestLostOrder_Removal_FindsTheRuntimeByItsShoot(t *testing.T) {
	w := newWorld(t)
	op := w.all([]string{"Resolve_Target_Secret"}, w.order())
	w.run("Create_Runtime_Without_Kyma", op)
	w.advance(takes)
	w.all([]string{"Remove_Runtime", "Check_Runtime_Removal"}, deprovision(op))
	w.holds("provisioner/runtime", 0)
}

func TestShoot_OfAnotherSubaccount_IsNotTakenNorRemoved(t *testing.T) {
	w := newWorld(t)
	op := w.all([]string{"Resolve_Target_Secret"}, w.order())
	w.all([]string{"Create_Runtime_Without_Kyma"}, op)
	other := op
	other.InstanceID, other.Context.SubaccountID = "another", "SA-2"
	w.expect("Create_Runtime_Without_Kyma", other, retry, "belongs to another subaccount")
	w.all([]string{"Remove_Runtime", "Check_Runtime_Removal"}, deprovision(other))
	w.holds("provisioner/runtime", 1)
}
