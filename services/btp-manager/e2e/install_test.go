package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

// whole is a cluster with controllers, a scheduler and a node, and a user with kubectl.
type whole struct {
	t         *testing.T
	cluster   *kubetest.Cluster
	network   *network
	inventory *inventory
	owner     string // the kubeconfig of a user with the roles that the charts bring
}

func newWhole(t *testing.T) *whole {
	t.Helper()
	w := &whole{t: t, network: new(network)}
	t.Cleanup(func() {
		if err := w.network.close(); err != nil {
			t.Error(err)
		}
	})
	w.cluster = kubetest.Full(t, w.network.option)
	t.Cleanup(func() {
		if t.Failed() {
			call := kubetest.KubectlCall{Args: []string{"get", "btpoperators", "-A", "-o", "yaml"}}
			state, err := w.cluster.RunKubectl(context.WithoutCancel(t.Context()), call)
			t.Logf("BtpOperators (%v):\n%s", err, state)
		}
	})
	w.inventory = newInventory(t, w.cluster)
	w.owner = w.cluster.Kubeconfig(t, w.cluster.As(t, "owner"))
	for _, role := range []string{
		// This cluster does not aggregate roles, so the owner gets the parts of "edit" and "view" individually.
		"system:aggregate-to-edit", "system:aggregate-to-view",
		"kyma-btp-manager-edit", "kyma-btp-manager-view", "kyma-btp-operator-edit", "kyma-btp-operator-view",
	} {
		w.admin("create", "clusterrolebinding", "owner-"+strings.ReplaceAll(role, ":", "-"), "--clusterrole="+role, "--user=owner")
	}
	return w
}

func (w *whole) in(t *testing.T) *whole {
	t.Helper()
	sub := *w
	sub.t, sub.inventory = t, w.inventory.in(t)
	return &sub
}

// admin runs kubectl with all rights.
func (w *whole) admin(args ...string) string {
	w.t.Helper()
	return strings.TrimSpace(w.cluster.Kubectl(w.t, args...))
}

// kubectl runs kubectl as the owner.
func (w *whole) kubectl(args ...string) string {
	w.t.Helper()
	return w.run(kubetest.KubectlCall{Args: args, Kubeconfig: w.owner})
}

// apply applies a manifest as the owner.
func (w *whole) apply(manifest string) {
	w.t.Helper()
	w.run(kubetest.KubectlCall{Args: []string{"apply", "-f", "-"}, Stdin: manifest, Kubeconfig: w.owner})
}

func (w *whole) run(call kubetest.KubectlCall) string {
	w.t.Helper()
	out, err := w.cluster.RunKubectl(w.t.Context(), call)
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// await waits until a BtpOperator has a reason.
func (w *whole) await(reason string) {
	w.t.Helper()
	w.kubectl("wait", "btpoperator/btpoperator", "-n", kymaSystem, "--timeout=100s", "--for=jsonpath={.status.conditions[0].reason}="+reason)
}

// look triggers a pass over the BtpOperator, and waits for it.
func (w *whole) look(manager *process, value string) {
	w.t.Helper()
	w.await("ReconcileSucceeded")
	before := manager.metric("btpmanager_reconciles_total")
	w.kubectl("annotate", "btpoperator", "btpoperator", "-n", kymaSystem, "--overwrite", "look="+value)
	testkit.Eventually(w.t, waitTimeout, "a look at the BtpOperator", func() bool { return manager.metric("btpmanager_reconciles_total") > before })
	w.await("ReconcileSucceeded")
}

const (
	credentials = `
apiVersion: v1
kind: Secret
metadata: {name: sap-btp-manager, namespace: kyma-system}
stringData: {clientid: a-client, clientsecret: a-client-secret, sm_url: "https://sm.example.com", tokenurl: "https://auth.example.com", cluster_id: a-cluster}
`
	btpOperator = `
apiVersion: operator.kyma-project.io/v1alpha1
kind: BtpOperator
metadata: {name: btpoperator, namespace: kyma-system}
`
	// services are the owner's orders. The finalizers are those of the operand, which sets them on new objects.
	services = `
apiVersion: services.cloud.sap.com/v1
kind: ServiceInstance
metadata: {name: database, namespace: shop, finalizers: [services.cloud.sap.com/sap-btp-finalizer]}
spec: {serviceOfferingName: postgresql, servicePlanName: small}
---
apiVersion: services.cloud.sap.com/v1
kind: ServiceBinding
metadata: {name: database, namespace: shop, finalizers: [services.cloud.sap.com/sap-btp-finalizer]}
spec: {serviceInstanceName: database}
`
	// belongings are other objects of the owner, some of which resemble those of the manager.
	belongings = `
apiVersion: v1
kind: ConfigMap
metadata: {name: prices, namespace: shop, labels: {app.kubernetes.io/managed-by: owner, owner: e2e}}
---
apiVersion: v1
kind: Secret
metadata: {name: database, namespace: shop, labels: {kyma-project.io/module: btp-operator, owner: e2e}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: sap-btp-operator-controller-manager, namespace: shop, labels: {owner: e2e}}
spec:
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec: {serviceAccountName: shop, containers: [{name: shop, image: shop}]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: shop, namespace: shop, labels: {owner: e2e}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: notes, namespace: kyma-system, labels: {owner: e2e}}
`
	settingsMap = `
apiVersion: v1
kind: ConfigMap
metadata: {name: sap-btp-manager, namespace: kyma-system}
data: {HardDeleteTimeout: 5m, HardDeleteCheckInterval: 1s}
`
)

func TestChart_FullCluster_InstallsAndRemoves(t *testing.T) {
	w := newWhole(t)
	chart := renderManager(t, "settings: {ReadyTimeout: 100s, HardDeleteTimeout: 1h}")
	var manager *process

	ok := t.Run("the chart is installed", func(t *testing.T) {
		w := w.in(t)
		w.admin("delete", "crd", "btpoperators.operator.kyma-project.io")
		w.run(kubetest.KubectlCall{Args: []string{"apply", "--server-side", "-f", "-"}, Stdin: chart.manifest(t)})
		w.admin("rollout", "status", "deployment/btp-manager", "-n", kymaSystem, "--timeout=100s")
		w.admin("wait", "crd/btpoperators.operator.kyma-project.io", "--for=condition=Established", "--timeout=100s")
		w.admin("create", "namespace", "shop")
	}) && t.Run("the manager starts with its ServiceAccount and the chart's flags", func(t *testing.T) {
		manager = launch(w.t, w.cluster.Kubeconfig(w.t, w.cluster.ServiceAccountConfig(t, kymaSystem, "btp-manager")), chart.flags(t)...)
		manager.awaitUp()
		manager.awaitLead()
	}) && t.Run("a BtpOperator gets Ready with everything that the operand's chart makes", func(t *testing.T) {
		w := w.in(t)
		w.apply(btpOperator)
		w.await("MissingSecret")
		w.apply(credentials)
		w.await("ReconcileSucceeded")
		if ready := w.kubectl("get", "deployment", operandPod, "-n", kymaSystem, "-o", "jsonpath={.status.readyReplicas}/{.status.replicas}"); ready != "1/1" {
			t.Errorf("replicas of the operand that are ready: %s", ready)
		}
		if node := w.kubectl("get", "pods", "-n", kymaSystem, "-l", "app.kubernetes.io/managed-by=btp-manager", "-o", "jsonpath={.items[*].status.phase}"); node != "Running" {
			t.Errorf("the operand's pods: %q", node)
		}
	}) && t.Run("kubectl shows the state and why", func(t *testing.T) {
		w := w.in(t)
		for _, tt := range []struct{ args, header, row []string }{
			{nil, []string{"NAME", "STATE", "REASON", "AGE"}, []string{"btpoperator", "Ready", "ReconcileSucceeded"}},
			{[]string{"-o", "wide"}, []string{"NAME", "STATE", "REASON", "MESSAGE", "AGE"}, []string{"btpoperator", "Ready", "ReconcileSucceeded", "the", "operand", "is", "ready"}},
		} {
			lines := strings.Split(w.kubectl(append([]string{"get", "btpoperators", "-n", kymaSystem}, tt.args...)...), "\n")
			if len(lines) != 2 || !slices.Equal(strings.Fields(lines[0]), tt.header) || !slices.Equal(strings.Fields(lines[1])[:len(tt.row)], tt.row) {
				t.Errorf("kubectl get btpoperators %v:\n%s", tt.args, strings.Join(lines, "\n"))
			}
		}
	}) && t.Run("what controllers write is no drift, and what users change is", func(t *testing.T) {
		w := w.in(t)
		corrections := func() float64 { return manager.metric("btpmanager_drift_corrections_total") }
		operand := func(of string) string {
			out, _ := w.cluster.RunKubectl(t.Context(), kubetest.KubectlCall{Args: []string{
				"get", "deployment", operandPod, "-n", kymaSystem, "-o", "jsonpath={" + of + "}",
			}})
			return out
		}
		w.look(manager, "1")
		if n := corrections(); n != 0 || operand(".metadata.annotations") == "" {
			t.Errorf("%v corrections without a change", n)
		}
		w.kubectl("rollout", "restart", "deployment/"+operandPod, "-n", kymaSystem)
		w.kubectl("rollout", "status", "deployment/"+operandPod, "-n", kymaSystem, "--timeout=100s")
		w.look(manager, "2")
		if n := corrections(); n != 0 || operand(`.spec.template.metadata.annotations.kubectl\.kubernetes\.io/restartedAt`) == "" {
			t.Errorf("%v corrections of a restart, which is the user's right", n)
		}
		w.await("ReconcileSucceeded")
		w.kubectl("scale", "deployment", operandPod, "-n", kymaSystem, "--replicas=3")
		testkit.Eventually(t, waitTimeout, "one replica again, and a correction is counted", func() bool {
			return operand(".spec.replicas") == "1" && corrections() > 0
		})
		old := operand(".metadata.uid")
		w.kubectl("delete", "deployment", operandPod, "-n", kymaSystem)
		testkit.Eventually(t, waitTimeout, "another Deployment, which is ready", func() bool {
			return operand(".metadata.uid") != old && operand(".status.readyReplicas") == "1"
		})
		w.await("ReconcileSucceeded")
	}) && t.Run("the owner's orders pass the operand's webhooks", func(t *testing.T) {
		w := w.in(t)
		w.apply(services)
		w.apply(belongings)
		for _, kind := range []string{"serviceinstance", "servicebinding"} {
			for _, webhook := range []string{"mutate", "validate"} {
				if path := "/" + webhook + "-services-cloud-sap-com-v1-" + kind; !w.network.wasAsked(path, "CREATE", "database") {
					t.Errorf("%s was not asked", path)
				}
			}
		}
		w.kubectl("rollout", "status", "deployment/"+operandPod, "-n", "shop", "--timeout=100s")
	}) && t.Run("an instance that is stuck is deleted softly when the time is over", func(t *testing.T) {
		w := w.in(t)
		labelled := w.inventory.ours(t.Context())
		for _, kind := range []string{"pods", "deployments", "replicasets", "endpointslices", "customresourcedefinitions", "validatingwebhookconfigurations", "secrets"} {
			if !slices.ContainsFunc(labelled, func(f found) bool { return f.Resource == kind }) {
				t.Errorf("nothing of the kind %s has the label, so that this test shows little: %v", kind, labelled)
			}
		}
		w.apply(settingsMap)
		w.kubectl("delete", "btpoperator", "btpoperator", "-n", kymaSystem, "--wait=false")
		w.await("HardDeleting")
		// The operand cleans up the binding, but cannot clean up the instance.
		release(w, "servicebinding")
		w.kubectl("wait", "serviceinstance/database", "-n", "shop", "--for=jsonpath={.metadata.deletionTimestamp}", "--timeout=100s")
		if left := time.Until(w.deadline()); left > 5*time.Minute {
			t.Errorf("the hard delete has %s, want the value of the ConfigMap", left)
		}
		deadline := w.hurry(5 * time.Second)
		w.kubectl("wait", "btpoperator/btpoperator", "-n", kymaSystem, "--for=delete", "--timeout=110s")
		if now := time.Now(); now.Before(deadline) {
			t.Errorf("the BtpOperator is gone %s before the end of the hard delete", deadline.Sub(now))
		}
		if events := w.kubectl("get", "events", "-n", kymaSystem, "--field-selector=reason=SoftDeleting", "-o", "jsonpath={.items[*].type} {.items[*].note}{.items[*].message}"); !strings.HasPrefix(events, "Warning") {
			t.Errorf("events about a soft delete: %q", events)
		}
		w.nothingLeft()
		w.belongingsLeft()
	}) && t.Run("the next BtpOperator is deleted without a trace when the operand does its part", func(t *testing.T) {
		w := w.in(t)
		w.apply(btpOperator)
		w.await("ReconcileSucceeded")
		w.apply(services)
		w.kubectl("delete", "btpoperator", "btpoperator", "-n", kymaSystem, "--wait=false")
		w.await("HardDeleting")
		release(w, "servicebinding")
		release(w, "serviceinstance")
		w.kubectl("wait", "btpoperator/btpoperator", "-n", kymaSystem, "--for=delete", "--timeout=110s")
		w.nothingLeft()
		w.belongingsLeft()
		if hard := manager.metric(`btpmanager_deletes_total{mode="hard",outcome="done"}`); hard != 1 {
			t.Errorf("%v hard deletes that were done, want 1", hard)
		}
	}) && t.Run("the chart is removed", func(t *testing.T) {
		w := w.in(t)
		manager.terminate()
		var rest installation
		for _, o := range chart.objects {
			if o.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
				rest.objects = append(rest.objects, o)
			}
		}
		w.run(kubetest.KubectlCall{Args: []string{"delete", "-f", "-", "--timeout=100s"}, Stdin: rest.manifest(t)})
		w.belongingsLeft()
	})
	if !ok {
		return
	}
	for _, bad := range []string{"forbidden", "a-client-secret", "panic"} {
		if strings.Contains(manager.log.String(), bad) {
			t.Errorf("the manager's log holds %q:\n%s", bad, manager.log)
		}
	}
}

// release removes the operand's finalizer, like the operand after the deletion on the remote side.
func release(w *whole, kind string) {
	w.t.Helper()
	w.kubectl("wait", kind+"/database", "-n", "shop", "--for=jsonpath={.metadata.deletionTimestamp}", "--timeout=100s")
	w.kubectl("patch", kind, "database", "-n", "shop", "--type=merge", `--patch={"metadata":{"finalizers":null}}`)
}

// deadline returns the end of the hard delete.
func (w *whole) deadline() time.Time {
	w.t.Helper()
	at, err := time.Parse(time.RFC3339, w.kubectl("get", "btpoperator", "btpoperator", "-n", kymaSystem, "-o", "jsonpath={.status.deprovisioning.hardDeleteDeadline}"))
	if err != nil {
		w.t.Fatal(err)
	}
	return at
}

// hurry moves the deadline of the hard delete forward, as if minutes had passed.
func (w *whole) hurry(left time.Duration) (deadline time.Time) {
	w.t.Helper()
	deadline = time.Now().Add(left).UTC().Truncate(time.Second)
	w.admin("patch", "btpoperator", "btpoperator", "-n", kymaSystem, "--subresource=status", "--type=merge",
		fmt.Sprintf(`--patch={"status":{"deprovisioning":{"hardDeleteDeadline":%q}}}`, deadline.Format(time.RFC3339)))
	return deadline
}

// nothingLeft waits until no object has the manager's label. The controllers delete the objects that the chart's objects owned.
func (w *whole) nothingLeft() {
	w.t.Helper()
	var left []found
	defer func() {
		if len(left) > 0 {
			w.t.Errorf("left: %v", left)
		}
	}()
	testkit.Eventually(w.t, waitTimeout, "nothing is left with the label", func() bool {
		left = w.inventory.ours(w.t.Context())
		return len(left) == 0
	})
	for _, kind := range []string{"serviceinstances", "servicebindings"} {
		if out, err := w.cluster.RunKubectl(w.t.Context(), kubetest.KubectlCall{Args: []string{"get", kind}}); err == nil {
			w.t.Errorf("the API server still serves %s: %s", kind, out)
		}
	}
}

// belongingsLeft fails the test unless all of the owner's other objects exist.
func (w *whole) belongingsLeft() {
	w.t.Helper()
	var names []string
	for _, o := range w.inventory.labelled(w.t.Context(), "owner=e2e") {
		names = append(names, fmt.Sprint(o))
	}
	slices.Sort(names)
	want := []string{
		"configmaps kyma-system/notes", "configmaps shop/prices", "deployments shop/" + operandPod, "secrets shop/database", "serviceaccounts shop/shop",
	}
	if !slices.Equal(names, want) {
		w.t.Errorf("the owner has %v, want %v", names, want)
	}
	for _, name := range []string{"secret/sap-btp-manager", "configmap/sap-btp-manager"} {
		w.kubectl("get", name, "-n", kymaSystem)
	}
}
