package stepworkers_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/kyma"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
	"github.com/kyma-project/keb/services/step-workers/reconciler"
)

// components is the list of a version of Kyma, with each component that some plan excludes.
var components = []kyma.Component{
	{Name: "cluster-essentials", Namespace: "kyma-system"},
	{Name: "istio", Namespace: "istio-system"},
	{Name: "backup", Namespace: "kyma-system"},
	{Name: "nats-streaming", Namespace: "natss"},
	{Name: "knative-eventing-kafka", Namespace: "knative-eventing"},
	{Name: "tracing", Namespace: "kyma-system"},
	{Name: "kiali", Namespace: "kyma-system"},
	{Name: "monitoring", Namespace: "kyma-system"},
	{Name: "serverless", Namespace: "kyma-system"},
	{Name: "application-connector", Namespace: "kyma-integration"},
	{Name: "btp-operator", Namespace: "kyma-system", URL: "https://charts.example.com/btp-operator-1.0.0.tgz"},
}

// decided returns the details of a version with these components.
func decided(list []kyma.Component) map[string]any {
	return map[string]any{kyma.Name: kyma.Details{Version: "2.20.0", Origin: kyma.OriginDefaults, Components: list}}
}

// reconciled are the plans whose runtimes the Reconciler receives.
var reconciled = []struct{ name, id, provider, region string }{
	{"azure", "4deee563-e5ec-4731-b9b1-53b42d855f0c", "azure", "eastus"},
	{"azure_lite", "8cb22518-aa26-44c5-91a0-e669ec9bf443", "azure", "eastus"},
	{"aws", "361c511f-f939-4621-b228-d0fb79a1fe15", "aws", "eu-central-1"},
	{"gcp", "ca6e5357-707f-4565-bbbd-b3ab732597c6", "gcp", "europe-west3"},
	{"openstack", "03b812ac-c991-4528-b5bd-08b303523a63", "openstack", "eu-de-1"},
	{"trial", "7d55d31d-35ae-4438-bf13-6ffdfa107d9f", "azure", "westeurope"},
	{"free", "b1a5764e-2ea1-4f95-94c0-2b4538b37b55", "aws", "eu-central-1"},
	{"own_cluster", "03e3cb66-a4c6-4c6a-b4b0-5d42224debea", "", ""},
}

// ordered returns an order of a plan.
func (w *world) ordered(plan, id, provider, region string) workertest.Operation {
	op := w.order()
	op.Plan = event.Plan{ID: id, Name: plan}
	op.Runtime.Provider, op.Runtime.Region = provider, region
	op.Parameters = map[string]any{"name": "demo", "region": region, "oidc": op.Parameters.(map[string]any)["oidc"]}
	if plan == "own_cluster" {
		op.Runtime.ShootName, op.Runtime.ShootDomain = "own-1", "own.example.com"
		op.Credentials[event.CredentialsKubeconfig] = map[string]any{"kubeconfig": w.customersCluster("keb")}
	}
	return op
}

// customersCluster returns a kubeconfig of the control plane, which stands in for a customer's cluster. Each name gives a different text.
func (w *world) customersCluster(name string) string {
	return "# " + name + strings.NewReplacer("https://127.0.0.1:1", w.url+"/k8s/control-plane", canary, "keb").Replace("\n"+ownKubeconfig)
}

// The steps up to a call of the Reconciler, by type of operation.
var (
	toReconciler = []string{
		"Provision_Initialization", "Overrides_From_Secrets_And_Config_Step", "BTPOperatorOverrides", "BusolaMigratorOverrides",
		"Create_Runtime_Without_Kyma", "Check_Runtime", "Get_Kubeconfig", "Create_Cluster_Configuration", "Check_Cluster_Configuration",
	}
	credentialUpdateOnly = []string{
		"Update_Init_Kyma_Version", "Get_Kubeconfig", "BTPOperatorOverrides", "Apply_Reconciler_Configuration", "CheckReconcilerState",
	}
	kymaUpgradeOnly = []string{
		"Upgrade_Init_Kyma_Version", "Get_Kubeconfig", "BTPOperatorOverrides", "Overrides_From_Secrets_And_Config_Step", "BusolaMigratorOverrides",
		"Apply_Cluster_Configuration", "Check_Cluster_Configuration",
	}
	applying       = []string{"Apply_Reconciler_Configuration", "CheckReconcilerState"}
	deregistration = []string{"Deregister_Cluster", "Check_Cluster_Deregistration"}
)

// installed returns an instance of the plan with an installed Kyma.
func (w *world) installed(op workertest.Operation) workertest.Operation {
	w.t.Helper()
	steps := toReconciler
	if op.Plan.Name != "own_cluster" {
		return w.all(append([]string{resolve}, steps...), op)
	}
	return w.all(slices.DeleteFunc(slices.Clone(steps), func(s string) bool {
		return s == "Create_Runtime_Without_Kyma" || s == "Check_Runtime"
	}), op)
}

// on returns a later operation on op's instance, with its order.
func (w *world) on(op workertest.Operation, kind event.OperationType, id string) workertest.Operation {
	next := w.later(op, kind, id)
	next.Runtime, next.Parameters, next.Context, next.Credentials = op.Runtime, op.Parameters, op.Context, maps.Clone(op.Credentials)
	return next
}

// withSecret returns an update of the credentials of the Service Manager.
func (w *world) withSecret(op workertest.Operation, id, secret string) workertest.Operation {
	next := w.on(op, event.Update, id)
	next.Update = &event.Changes{Credentials: []string{event.CredentialsServiceManager}}
	credentials := maps.Clone(op.Credentials[event.CredentialsServiceManager].(map[string]any))
	credentials["clientsecret"] = secret
	next.Credentials[event.CredentialsServiceManager] = credentials
	return next
}

func (w *world) toKyma(op workertest.Operation, id, version string) workertest.Operation {
	next := w.on(op, event.UpgradeKyma, id)
	next.Upgrade = &event.Upgrade{OrchestrationID: "o-1", KymaVersion: version}
	return next
}

func TestReconciler_EveryPlanAndOperation_SendsTheGoldenRequests(t *testing.T) {
	for _, plan := range reconciled {
		t.Run(plan.name, func(t *testing.T) {
			w := newWorld(t)
			op := w.installed(w.ordered(plan.name, plan.id, plan.provider, plan.region))
			w.goldenReconciler(op, plan.name+"_provision")
			op = w.all(credentialUpdateOnly, w.withSecret(op, "u-1", canary+"-new"))
			w.goldenReconciler(op, plan.name+"_update")
			op = w.all(kymaUpgradeOnly, w.toKyma(op, "k-1", "2.21.0"))
			w.goldenReconciler(op, plan.name+"_upgradeKyma")
			w.all(deregistration, deprovision(op))
			w.goldenReconciler(op, plan.name+"_deprovision")
			w.noSecrets()
		})
	}
}

// goldenReconciler compares the requests to the Reconciler with a golden file, with names for the values that differ in each run.
func (w *world) goldenReconciler(op workertest.Operation, name string) {
	w.t.Helper()
	id := saved[provisioner.Details](w.t, op, provisioner.Name).RuntimeID
	kubeconfig := w.runtimeKubeconfigOf(op)
	w.door.mu.Lock()
	for i := range w.door.requests {
		r := &w.door.requests[i]
		r.Request = strings.ReplaceAll(r.Request, id, "RUNTIME-ID")
		if body, ok := r.Body.(map[string]any); ok && strings.HasPrefix(r.Path, "/reconciler") {
			body["runtimeID"] = strings.ReplaceAll(body["runtimeID"].(string), id, "RUNTIME-ID")
			if body["kubeconfig"] != kubeconfig {
				w.t.Errorf("%s: the kubeconfig is not that of the runtime", name)
			}
			body["kubeconfig"] = "KUBECONFIG"
		}
	}
	w.door.mu.Unlock()
	w.golden("reconciler_"+name, "/reconciler")
}

// runtimeKubeconfigOf returns the kubeconfig of op's runtime, or of its own cluster.
func (w *world) runtimeKubeconfigOf(op workertest.Operation) string {
	w.t.Helper()
	if own, ok := op.Credentials[event.CredentialsKubeconfig].(map[string]any); ok {
		return own["kubeconfig"].(string)
	}
	return w.runtimeKubeconfig(op)
}

// R2.
func TestReconciler_TwoInstances_GetTheirOwnDomain(t *testing.T) {
	w := newWorld(t)
	var domains []string
	for _, id := range []string{"11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"} {
		op := w.order()
		op.InstanceID, op.Runtime.ShootName, op.Runtime.ShootDomain = id, "c-"+id[:8], id[:8]+".kyma.example.com"
		sent := w.record(func() { w.installed(op) })
		for _, c := range sent[0].KymaConfig.Components {
			if first := c.Configuration[0]; first.Key != "global.domainName" || first.Value != op.Runtime.ShootDomain {
				t.Errorf("the first override of %s is %v", c.Component, first)
			}
		}
		domains = append(domains, sent[0].KymaConfig.Components[0].Configuration[0].Value.(string))
	}
	if domains[0] == domains[1] {
		t.Errorf("both have the domain %s", domains[0])
	}
}

// R4 and R5.
func TestReconciler_OverridesOfUnknownComponents_AddNothing(t *testing.T) {
	w := newWorld(t)
	op := w.order()
	op.Credentials, op.Details = nil, decided(components)
	op.Parameters.(map[string]any)["components"] = []string{"kiali"}
	w.overrideOf("unknown", "key", "value")
	w.overrideOf("btp-operator", "key", "value")
	sent := w.record(func() {
		w.all([]string{
			resolve, "Overrides_From_Secrets_And_Config_Step", "BusolaMigratorOverrides", "Create_Runtime_Without_Kyma", "Check_Runtime",
			"Get_Kubeconfig", "Create_Cluster_Configuration",
		}, op)
	})
	var got []string
	for _, c := range sent[0].KymaConfig.Components {
		got = append(got, c.Component+"@"+c.Namespace)
	}
	want := []string{
		"cluster-essentials@kyma-system", "istio@istio-system", "knative-eventing-kafka@knative-eventing", "kiali@kyma-system",
		"monitoring@kyma-system", "serverless@kyma-system", "application-connector@kyma-integration",
	}
	equal(t, "components", want, got)
}

// overrideOf adds a ConfigMap with one override of a component to the control plane.
func (w *world) overrideOf(component, key, value string) {
	w.t.Helper()
	w.override("overrides-of-"+component, map[string]any{
		"overrides-plan-azure": "true", "overrides-version-2.20.0": "true", "component": component,
	}, map[string]any{key: value})
}

// R5: each of the seven keys is required.
func TestReconciler_BTPOperatorLacksAKey_Fails(t *testing.T) {
	w := newWorld(t)
	reached := w.all([]string{"Provision_Initialization", resolve, "Create_Runtime_Without_Kyma", "Check_Runtime", "Get_Kubeconfig"}, w.order())
	complete := w.run("BTPOperatorOverrides", reached).Then()
	all := w.run("BTPOperatorOverrides", reached).Overrides[0].Entries
	if len(all) != 7 {
		t.Fatalf("%d overrides", len(all))
	}
	for i := range all {
		op := w.reachedAgain(reached, complete)
		op.Overrides = slices.Clone(w.run("BTPOperatorOverrides", reached).Overrides)
		op.Overrides[0].Entries = slices.Delete(slices.Clone(all), i, i+1)
		r := w.run("Create_Cluster_Configuration", op)
		if r.Outcome != failed || !strings.Contains(r.Error.Message, all[i].Key) {
			t.Errorf("%s: %s, %+v", all[i].Key, r.Outcome, r.Error)
		}
	}
}

// reachedAgain returns op with the details of another operation, and only the kubeconfig in the stage memory.
func (w *world) reachedAgain(op, other workertest.Operation) workertest.Operation {
	next := w.on(op, event.Provision, "")
	next.Details = other.Details
	next.Remembered = map[string][]byte{provisioner.KubeconfigKey: []byte(w.runtimeKubeconfig(op))}
	return next
}

// R1: after an update of the credentials, every other component has the overrides of the provisioning.
func TestReconciler_CredentialUpdate_ReplacesOnlyTheBTPOperator(t *testing.T) {
	w := newWorld(t)
	w.overrideOf("serverless", "function.replicas", "3")
	var op workertest.Operation
	before := w.sent(func() { op = w.installed(w.order()) })
	after := w.sent(func() { op = w.all(credentialUpdateOnly, w.withSecret(op, "u-1", canary+"-new")) })
	if len(before) != 1 || len(after) != 1 {
		t.Fatalf("%d and %d configurations were sent", len(before), len(after))
	}
	was, is := split(t, before[0]), split(t, after[0])
	equal(t, "besides btp-operator", was.rest, is.rest)
	if len(was.rest["kymaConfig"].(map[string]any)["components"].([]any)) < 5 {
		t.Error("too few other components")
	}
	want := map[string]any{"component": "btp-operator", "namespace": "kyma-system", "URL": was.operator["URL"], "version": "", "configuration": []any{
		entry("cluster.id", saved[clusterIdentity](t, op, "btp").SMClusterID, false),
		entry("manager.priorityClassName", "kyma-system", false),
		entry("manager.secret.clientid", canary+"-id", true),
		entry("manager.secret.clientsecret", canary+"-new", true),
		entry("manager.secret.sm_url", "https://sm.example.com", false),
		entry("manager.secret.tokenurl", "https://"+canary+".example.com", false),
		entry("manager.secret.url", "https://sm.example.com", false),
	}}
	equal(t, "btp-operator", want, is.operator)
	// The next upgrade replaces the stored configuration.
	op = w.all(kymaUpgradeOnly, w.toKyma(op, "k-1", "2.21.0"))
	again := w.sent(func() { w.all(credentialUpdateOnly, w.withSecret(op, "u-2", canary+"-newer")) })
	if version := again[0]["kymaConfig"].(map[string]any)["version"]; version != "2.21.0" {
		t.Errorf("after the upgrade the version is %v", version)
	}
	w.noSecrets()
}

// clusterIdentity is what the worker btp has saved.
type clusterIdentity struct {
	SMClusterID string `json:"smClusterId"`
}

func entry(key, value string, secret bool) map[string]any {
	return map[string]any{"key": key, "value": value, "secret": secret}
}

// configurationParts is a configuration without its BTP operator, and the BTP operator.
type configurationParts struct{ rest, operator map[string]any }

func split(t *testing.T, sent map[string]any) configurationParts {
	t.Helper()
	config := sent["kymaConfig"].(map[string]any)
	var p configurationParts
	var others []any
	for _, c := range config["components"].([]any) {
		if part := c.(map[string]any); part["component"] == "btp-operator" {
			p.operator = part
			continue
		}
		others = append(others, c)
	}
	config = maps.Clone(config)
	config["components"] = others
	p.rest = maps.Clone(sent)
	p.rest["kymaConfig"] = config
	return p
}

// sent returns the configurations that the Reconciler receives while f runs.
func (w *world) sent(f func()) []map[string]any { return configurations[map[string]any](w, f) }

func TestReconciler_SameCredentials_AreNotSent(t *testing.T) {
	w := newWorld(t)
	op := w.installed(w.order())
	again := w.withSecret(op, "u-1", canary+"-secret")
	if sent := w.sent(func() { again = w.all(credentialUpdateOnly, again) }); len(sent) != 0 {
		t.Errorf("%d configurations were sent", len(sent))
	}
	// Charts from another source are sent.
	moved := w.withSecret(again, "u-2", canary+"-secret")
	maps.Copy(moved.Details, decided(components))
	if sent := w.sent(func() { w.all(without(credentialUpdateOnly, "Update_Init_Kyma_Version"), moved) }); len(sent) != 1 {
		t.Errorf("with another URL %d configurations were sent", len(sent))
	}
}

func TestReconciler_NothingKept_FailsTheUpdate(t *testing.T) {
	w := newWorld(t)
	op := w.withSecret(w.installed(w.order()), "u-1", canary+"-new")
	op.Kept = nil
	op = w.all(upTo("BTPOperatorOverrides", credentialUpdateOnly), op)
	w.expect("Apply_Reconciler_Configuration", op, failed, "err_configuration_not_kept")
}

// The stored configuration cannot be decrypted: an update waits for it, and an upgrade replaces it.
func TestReconciler_BrokenKeptValue_IsReplacedByAnUpgrade(t *testing.T) {
	w := newWorld(t)
	op := w.installed(w.order())
	op.Kept[reconciler.Name] = json.RawMessage(`"does not open"`)
	update := w.all(upTo("BTPOperatorOverrides", credentialUpdateOnly), w.withSecret(op, "u-1", canary+"-new"))
	if r := w.run("Apply_Reconciler_Configuration", update); r.Outcome != retry {
		t.Errorf("update: %s, %+v", r.Outcome, r.Error)
	}

	dry := w.upgrade(op, event.UpgradeKyma, "k-1")
	dry.Upgrade.DryRun = true
	dry = w.all(upTo("AVS_Set_Maintenance", upgradingKyma), dry)
	if r := w.run("Apply_Cluster_Configuration", dry); r.Outcome != skipped || string(dry.Kept[reconciler.Name]) != `"does not open"` {
		t.Errorf("dry run: %s, %+v, and the kept value was replaced", r.Outcome, r.Error)
	}

	// The worker is killed after the call and before it stores the new configuration: the former one must not be used if it can be decrypted again.
	upgrade := w.all(upTo("AVS_Set_Maintenance", upgradingKyma), w.upgrade(op, event.UpgradeKyma, "k-2"))
	if r := w.during(fault{prefix: "/reconciler", status: http.StatusInternalServerError}, "Apply_Cluster_Configuration", upgrade); r.Outcome != retry {
		t.Errorf("an upgrade while the Reconciler is down: %s, %+v", r.Outcome, r.Error)
	}
	if marked := string(upgrade.Kept[reconciler.Name]); !strings.Contains(marked, `"operationId":"k-2"`) {
		t.Errorf("marked is %s", marked)
	}
	w.build(w.url)
	upgrade = w.all([]string{"Apply_Cluster_Configuration"}, upgrade)
	if kept := string(upgrade.Kept[reconciler.Name]); !strings.Contains(kept, `"2.21.0"`) {
		t.Errorf("the new configuration is not kept: %s", kept)
	}
	after := w.all(upTo("BTPOperatorOverrides", credentialUpdateOnly), w.withSecret(upgrade, "u-2", canary+"-new"))
	w.all([]string{"Apply_Reconciler_Configuration"}, after)
}

// The worker is killed after each action of the step: mark, call, store, report.
func TestReconciler_KilledDuringACredentialUpdate_SendsIt(t *testing.T) {
	w := newWorld(t)
	provisioned := w.installed(w.order())
	for _, moment := range []string{"between the mark and the call", "between the call and the store", "between the store and the result"} {
		t.Run(moment, func(t *testing.T) {
			op := provisioned
			op.Kept = maps.Clone(op.Kept)
			id := "u " + moment
			op = w.all(upTo("BTPOperatorOverrides", credentialUpdateOnly), w.withSecret(op, id, canary+moment))
			before := op.Kept[reconciler.Name]
			switch moment {
			case "between the mark and the call":
				w.during(fault{prefix: "/reconciler", status: http.StatusBadGateway}, "Apply_Reconciler_Configuration", op)
			case "between the call and the store":
				w.run("Apply_Reconciler_Configuration", op)
				op.Kept[reconciler.Name] = marked(t, before, id)
			case "between the store and the result":
				w.run("Apply_Reconciler_Configuration", op)
			}
			w.build(w.url)
			sent := w.sent(func() { op = w.all(applying, op) })
			if len(sent) != 1 || !strings.Contains(operatorText(t, sent[0]), canary+moment) {
				t.Errorf("%d configurations were sent", len(sent))
			}
			if by := saved[reconciler.Details](t, op, reconciler.Name).AppliedBy; by != id {
				t.Errorf("applied by %q", by)
			}
			if !strings.Contains(string(op.Kept[reconciler.Name]), canary+moment) {
				t.Error("the configuration is not kept")
			}
		})
	}
}

// After an update that ends between its mark and its result, the configuration of the Reconciler is unknown. The next update is sent even if
// it restores the stored credentials.
func TestReconciler_UpdateThatEndedUnknown_IsNotTakenForSent(t *testing.T) {
	w := newWorld(t)
	op := w.installed(w.order())
	lost := w.all(upTo("BTPOperatorOverrides", credentialUpdateOnly), w.withSecret(op, "u-1", canary+"-lost"))
	before := lost.Kept[reconciler.Name]
	w.run("Apply_Reconciler_Configuration", lost)
	op.Kept[reconciler.Name] = marked(t, before, "u-1")
	back := w.withSecret(op, "u-2", canary+"-secret")
	if sent := w.sent(func() { w.all(credentialUpdateOnly, back) }); len(sent) != 1 {
		t.Errorf("%d configurations were sent", len(sent))
	}
}

// After an upgrade of Kyma that ends between its call and its result, the version in the Reconciler is unknown. An update must not restore
// the former one.
func TestReconciler_UpdateAfterUpgradeWithUnknownEnd_Fails(t *testing.T) {
	w := newWorld(t)
	op := w.installed(w.order())
	upgrade := w.all(upTo("AVS_Set_Maintenance", upgradingKyma), w.upgrade(op, event.UpgradeKyma, "k-1"))
	w.during(fault{prefix: "/reconciler", status: http.StatusBadGateway, after: true}, "Apply_Cluster_Configuration", upgrade)
	w.build(w.url)
	op.Kept = upgrade.Kept
	update := w.all(upTo("BTPOperatorOverrides", credentialUpdateOnly), w.withSecret(op, "u-1", canary+"-new"))
	sent := w.sent(func() {
		w.expect("Apply_Reconciler_Configuration", update, failed, "err_configuration_not_kept")
	})
	if len(sent) != 0 {
		t.Errorf("%d configurations were sent", len(sent))
	}
}

// marked returns the stored configuration with the mark of the operation.
func marked(t *testing.T, kept json.RawMessage, operationID string) json.RawMessage {
	t.Helper()
	var members map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(kept, &members))
	members["operationId"], _ = json.Marshal(operationID)
	raw, err := json.Marshal(members)
	require.NoError(t, err)
	return raw
}

func operatorText(t *testing.T, sent map[string]any) string {
	t.Helper()
	text, err := json.Marshal(split(t, sent).operator)
	require.NoError(t, err)
	return string(text)
}

// Point 3: the Reconciler receives the new kubeconfig of an own cluster, and nothing else changes.
func TestReconciler_NewKubeconfigOfAnOwnCluster_IsSent(t *testing.T) {
	w := newWorld(t)
	var op workertest.Operation
	before := w.sent(func() { op = w.installed(w.ordered("own_cluster", "03e3cb66-a4c6-4c6a-b4b0-5d42224debea", "", "")) })
	next := w.on(op, event.Update, "u-1")
	next.Update = &event.Changes{Credentials: []string{event.CredentialsKubeconfig}}
	fresh := w.customersCluster("other")
	next.Credentials[event.CredentialsKubeconfig] = map[string]any{"kubeconfig": fresh}
	after := w.sent(func() {
		w.all([]string{"Get_Kubeconfig", "Apply_Reconciler_Configuration", "CheckReconcilerState"}, next)
	})
	if len(after) != 1 || after[0]["kubeconfig"] != fresh || fresh == before[0]["kubeconfig"] {
		t.Fatalf("%d configurations were sent", len(after))
	}
	before[0]["kubeconfig"] = fresh
	equal(t, "besides the kubeconfig", before[0], after[0])
}

func TestReconciler_AdministratorsOfAnOwnCluster_AreSent(t *testing.T) {
	w := newWorld(t)
	var op workertest.Operation
	before := w.sent(func() { op = w.installed(w.ordered("own_cluster", "03e3cb66-a4c6-4c6a-b4b0-5d42224debea", "", "")) })
	next := w.on(op, event.Update, "u-1")
	next.Update = &event.Changes{Parameters: json.RawMessage(`{"administrators":["new"]}`)}
	parameters := maps.Clone(op.Parameters.(map[string]any))
	parameters["administrators"] = []string{"new"}
	next.Parameters = parameters
	after := w.sent(func() {
		w.all([]string{"Get_Kubeconfig", "Apply_Reconciler_Configuration", "CheckReconcilerState"}, next)
	})
	if len(after) != 1 {
		t.Fatalf("%d configurations were sent", len(after))
	}
	before[0]["kymaConfig"].(map[string]any)["administrators"] = []any{"new"}
	equal(t, "configuration", before[0], after[0])
}

// An upgrade was killed before it saved its version: the status of the saved one does not change any more.
func TestReconciler_UnsavedVersion_IsTakenFromTheDeregistration(t *testing.T) {
	w := newWorld(t)
	op := w.installed(w.order())
	w.run("Apply_Cluster_Configuration", w.all(upTo("AVS_Set_Maintenance", upgradingKyma), w.upgrade(op, event.UpgradeKyma, "k-1")))
	before := saved[reconciler.Details](t, op, reconciler.Name).ConfigurationVersion
	r := w.run("Deregister_Cluster", deprovision(op))
	if got := saved[reconciler.Details](t, r.Then(), reconciler.Name).ConfigurationVersion; got <= before {
		t.Errorf("the check asks for version %d, want one after %d", got, before)
	}
}

// R8: the check uses the status of the saved version, not that of a later one.
func TestReconciler_Deregistration_IsReadByTheSavedVersion(t *testing.T) {
	w := newWorld(t)
	op := w.installed(w.order())
	d := saved[reconciler.Details](t, op, reconciler.Name)
	calls := w.calls(func() { op = w.all(deregistration, deprovision(op)) })
	for _, c := range calls {
		if want := "/reconciler/v1/clusters/" + d.RuntimeID + "/configs/"; c.method == http.MethodGet && !strings.HasPrefix(c.path, want) {
			t.Errorf("it asks %s", c.path)
		}
	}
	if left := saved[reconciler.Details](t, op, reconciler.Name); left != (reconciler.Details{}) {
		t.Errorf("saved is %+v", left)
	}
}

func TestReconciler_ConfigurationTooLarge_IsNotSent(t *testing.T) {
	w := newWorld(t)
	w.overrideOf("serverless", "key", strings.Repeat("x", 100_000))
	op := w.all(append([]string{resolve}, upTo("Get_Kubeconfig", toReconciler)...), w.order())
	sent := w.sent(func() {
		w.expect("Create_Cluster_Configuration", op, failed, "at most 100000")
	})
	if len(sent) != 0 {
		t.Error("it was sent")
	}
}

// The original creates a ConfigMap with a new id in a runtime without one; this worker uses the id of the instance.
func TestReconciler_RuntimeWithoutClusterID_GetsOne(t *testing.T) {
	w := newWorld(t)
	op := w.installed(w.order())
	id := saved[clusterIdentity](t, op, "btp").SMClusterID
	next := w.toKyma(op, "k-1", "2.21.0")
	delete(next.Details, "btp")
	dry := next
	dry.Upgrade = &event.Upgrade{OrchestrationID: "o-1", KymaVersion: "2.21.0", DryRun: true}
	for _, c := range w.calls(func() { dry = w.all([]string{"Get_Kubeconfig", "BTPOperatorOverrides"}, dry) }) {
		if c.method != http.MethodGet && c.graphQL() != "runtimeStatus" {
			t.Errorf("a dry run sends %s %s", c.method, c.path)
		}
	}
	require.Empty(t, saved[clusterIdentity](t, dry, "btp").SMClusterID)
	next = w.all([]string{"Get_Kubeconfig", "BTPOperatorOverrides"}, next)
	info, err := w.runtime(op).Get(t.Context(), kube.ConfigMaps, "kyma-system", "cluster-info")
	require.NoError(t, err)
	data, _ := info.Object["data"].(map[string]any)
	if again := saved[clusterIdentity](t, next, "btp").SMClusterID; again != id || data["id"] != id || id == "" {
		t.Errorf("provisioned with %q, upgraded with %q, in the runtime %v", id, again, data["id"])
	}
}

func TestReconciler_CheckGivesUp_RetriesTheDeletionForHalfAMinute(t *testing.T) {
	w := newWorld(t)
	op := w.all(upTo("Create_Cluster_Configuration", provisioning), w.order())
	w.door.fault.Store(&fault{prefix: "/reconciler", status: http.StatusBadGateway})
	op.FirstTried = 2 * time.Hour
	for after, want := range map[time.Duration]event.Outcome{115*time.Minute + 20*time.Second: retry, 116 * time.Minute: failed} {
		op.FirstTried = after
		if r := w.run("Check_Cluster_Configuration", op); r.Outcome != want {
			t.Errorf("after %s: %s, %+v", after, r.Outcome, r.Error)
		}
	}
}
