package app_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
	"github.com/kyma-project/keb/services/btp-manager/internal/render"
)

// tour makes BTP Manager perform all its functions, so that it sends every kind of request to the API server. Other tests check the results;
// here each stop must only complete.
type tour struct {
	*system         // that of the stop
	whole           *system
	clock           *testkit.Clock
	first, second   *v1alpha1.BtpOperator
	stuck, attached *unstructured.Unstructured
}

// around runs all stops. Each continues after the previous one.
func (r *tour) around() {
	for _, stop := range []struct {
		name string
		do   func()
	}{
		{"credentials that are missing, incomplete and complete", r.credentials},
		{"another BtpOperator, in another namespace", r.follower},
		{"changed objects", r.changed},
		{"wider roles", r.widened},
		{"deleted objects", r.deleted},
		{"a lost inventory", r.inventory},
		{"settings", r.configured},
		{"certificates", r.certificates},
		{"network policies", r.networkPolicies},
		{"another namespace for the credentials", r.moved},
		{"another cluster ID", r.otherCluster},
		{"another chart", r.upgrade},
		{"a deletion that is blocked", r.blocked},
		{"a hard delete, and another leader", r.hardDelete},
		{"a soft delete", r.softDelete},
		{"the operand first", r.operandFirst},
	} {
		ok := r.whole.t.Run(stop.name, func(t *testing.T) {
			r.system = r.whole.in(t)
			t.Cleanup(func() {
				if t.Failed() {
					r.describe()
				}
			})
			stop.do()
		})
		if !ok {
			r.whole.t.FailNow()
		}
	}
}

// describe logs the states of the BtpOperators.
func (r *tour) describe() {
	var all v1alpha1.BtpOperatorList
	if err := r.List(r.background(), &all); err != nil {
		r.t.Log(err)
	}
	for _, o := range all.Items {
		r.t.Logf("BtpOperator %s: %+v", client.ObjectKeyFromObject(&o), o.Status)
	}
}

// restart changes something while BTP Manager is stopped.
func (r *tour) restart(change func()) {
	r.t.Helper()
	r.whole.stop()
	change()
	r.whole.start()
	r.system = r.whole.in(r.t)
}

func (r *tour) ready(o *v1alpha1.BtpOperator) {
	r.t.Helper()
	r.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
}

func (r *tour) credentials() {
	r.first = r.operator("btpoperator")
	r.await(r.first, v1alpha1.StateError, v1alpha1.ReasonMissingSecret)
	r.create(secret("clientid", "-"))
	r.await(r.first, v1alpha1.StateError, v1alpha1.ReasonInvalidSecret)
	r.change("clientid", "a-client")
	r.ready(r.first)
}

func (r *tour) follower() {
	r.younger(r.first)
	r.second = &v1alpha1.BtpOperator{}
	r.second.Namespace, r.second.Name = "users", "a-second"
	r.create(r.second)
	r.follows(r.second, r.first)
	r.awaitEvent(r.second, "Warning", string(v1alpha1.ReasonOlderCRExists))
}

func (r *tour) changed() {
	before := ofTheChart(r.made())
	for _, o := range before {
		// With two definitions of the same name, one would stay rejected even after the name is free.
		name, _, _ := strings.Cut(o.GetName(), ".")
		r.patch(o.DeepCopy(), strings.ReplaceAll(edits[o.GetKind()], `["short"]`, `["x`+name+`"]`))
	}
	r.restored(before)
	for _, o := range before {
		r.patch(o.DeepCopy(), `{"metadata":{"labels":null}}`)
	}
	r.restored(before)
	r.ready(r.first)
	r.twice(r.first)
}

// twice performs an action twice: Kubernetes adds the second event to the first one.
func (r *tour) twice(leader *v1alpha1.BtpOperator) {
	const name = "ServiceAccount kyma-system/sap-btp-operator"
	o := r.made()[name]
	for range 2 {
		r.patch(o.DeepCopy(), edits[o.GetKind()])
		r.restored(map[string]*unstructured.Unstructured{name: o})
	}
	testkit.Eventually(r.t, waitTimeout, "an event counts two corrections", func() bool {
		return slices.ContainsFunc(r.events(leader), func(e eventsv1.Event) bool { return e.Reason == "DriftCorrected" && e.Series != nil })
	})
}

// widened restores roles with more rights than BTP Manager has.
func (r *tour) widened() {
	before := ofTheChart(r.made())
	for _, o := range before {
		if kind := o.GetKind(); kind == "Role" || kind == "ClusterRole" {
			r.patch(o.DeepCopy(), `{"rules":[{"apiGroups":["apps"],"resources":["statefulsets"],"verbs":["*"]}]}`)
		}
	}
	r.restored(before)
}

// deleted makes BTP Manager recreate all objects, some of them with immutable fields.
func (r *tour) deleted() {
	before := ofTheChart(r.made())
	// The API server may take a minute to delete a definition that has just changed; removals delete them later.
	maps.DeleteFunc(before, func(_ string, o *unstructured.Unstructured) bool { return o.GetKind() == "CustomResourceDefinition" })
	r.restart(func() {
		for _, o := range before {
			r.delete(o.DeepCopy())
			other := o.DeepCopy()
			switch o.GetKind() {
			case "Deployment":
				set(r.t, other, "another", "spec", "selector", "matchLabels", "control-plane")
				set(r.t, other, "another", "spec", "template", "metadata", "labels", "control-plane")
			case "RoleBinding", "ClusterRoleBinding":
				set(r.t, other, "ClusterRole", "roleRef", "kind")
				set(r.t, other, "cluster-admin", "roleRef", "name")
			default:
				continue
			}
			other.SetUID("")
			other.SetResourceVersion("")
			r.create(other)
		}
	})
	r.restored(before)
	r.ready(r.first)
}

func set(t *testing.T, o *unstructured.Unstructured, value string, path ...string) {
	t.Helper()
	require.NoError(t, unstructured.SetNestedField(o.Object, value, path...))
}

// inventory makes BTP Manager find objects without an inventory: those of its chart, and those of the original manager's operand.
func (r *tour) inventory() {
	o := new(corev1.ConfigMap)
	o.Namespace, o.Name = kymaSystem, operand.InventoryName
	if !r.exists(o) {
		r.t.Fatal("no inventory")
	}
	lines := o.Data["objects"]
	originals := []client.Object{
		labelledRole("sap-btp-operator-metrics-reader"), labelledRole("sap-btp-operator-proxy-role"), &rbacv1.ClusterRoleBinding{
			ObjectMeta: labelledRole("sap-btp-operator-proxy-rolebinding").ObjectMeta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sap-btp-operator-proxy-role"},
		},
	}
	for _, original := range originals {
		r.create(original)
	}
	r.patch(o, `{"data":{"objects":"none"}}`)
	r.poke(r.first)
	testkit.Eventually(r.t, waitTimeout, "the inventory is whole again", func() bool { return r.exists(o) && o.Data["objects"] == lines })
	for _, original := range originals {
		r.awaitGone(original)
	}
}

// labelledRole returns a ClusterRole with the labels of an operand.
func labelledRole(name string) *rbacv1.ClusterRole {
	o := new(rbacv1.ClusterRole)
	o.Name, o.Labels = name, map[string]string{render.ManagedByLabel: render.ManagedBy, render.ChartVersionLabel: "v0.2.5"}
	return o
}

func (r *tour) configured() {
	o := settingsMap(map[string]string{"ReadyCheckInterval": "100ms"})
	r.create(o)
	r.awaitMetric(1, "custom_config_applied")
	r.set(map[string]string{"ReadyCheckInterval": "never"})
	r.awaitMetric(1, "config_rejected")
	r.awaitEvent(o, "Warning", "ConfigRejected")
	r.delete(o)
	r.awaitMetric(0, "custom_config_applied")
}

func (r *tour) certificates() {
	old, _ := r.trusted()
	r.delete(certificateSecret("ca-server-cert"))
	testkit.Eventually(r.t, waitTimeout, "there is another CA", func() bool {
		next, _ := r.trusted()
		return !next.Equal(old)
	})
	// This field is immutable.
	serving := certificateSecret("webhook-server-cert")
	r.patch(serving, `{"immutable":true}`)
	replaced := serving.UID
	r.clock.Advance(r.settings.WebhookCertificateExpiration - r.settings.ExpirationBoundary + time.Hour)
	r.poke(r.first)
	testkit.Eventually(r.t, waitTimeout, "there is another serving certificate", func() bool { return r.exists(serving) && serving.UID != replaced })
	r.ready(r.first)
}

func (r *tour) networkPolicies() {
	policies := func() int {
		list := new(networkingv1.NetworkPolicyList)
		if err := r.List(r.t.Context(), list, client.InNamespace(kymaSystem)); err != nil {
			r.t.Fatal(err)
		}
		return len(list.Items)
	}
	all := policies()
	r.annotate(r.first, v1alpha1.DisableNetworkPoliciesAnnotation, "true")
	testkit.Eventually(r.t, waitTimeout, "the network policies go", func() bool { return policies() == 0 })
	r.annotate(r.first, v1alpha1.DisableNetworkPoliciesAnnotation, "")
	testkit.Eventually(r.t, waitTimeout, "the network policies come back", func() bool { return policies() == all })
}

func (r *tour) moved() {
	r.create(clusterID(kymaSystem, "a-cluster"))
	r.change("credentials_namespace", "credentials")
	r.awaitGone(operandSecret(kymaSystem))
	r.awaitGone(clusterID(kymaSystem, ""))
	r.ready(r.first)
	r.change("credentials_namespace", "-")
	r.awaitGone(operandSecret("credentials"))
	r.ready(r.first)
}

func (r *tour) otherCluster() {
	r.change("cluster_id", "b-cluster")
	r.awaitEvent(r.first, "Normal", string(v1alpha1.ReasonClusterIDChanged))
	r.ready(r.first)
	r.create(clusterID(kymaSystem, "a-cluster"))
	r.deployments.Hold()
	r.awaitGone(clusterID(kymaSystem, ""))
	r.awaitEvent(r.first, "Normal", "ClusterIDRemoved")
	r.deployments.Release()
	r.ready(r.first)
}

// upgrade adds, removes and renames objects. Cluster-scoped objects keep their names, because the roles contain them. A name that a release has
// removed and that the roles still contain belongs to the replaced chart.
func (r *tour) upgrade() {
	before := r.whole.chart
	r.restart(func() {
		names := strings.NewReplacer("name: sap-btp-", "name: renamed-")
		r.whole.release("2.0.0", func(path, content string) string {
			if path == "templates/userroles.yaml" {
				return ""
			}
			documents := strings.Split(content, "\n---\n")
			for i, d := range documents {
				if !strings.Contains(d, "kind: Cluster") && !strings.Contains(d, "WebhookConfiguration") {
					documents[i] = names.Replace(d)
				}
			}
			return strings.Join(documents, "\n---\n")
		})
	})
	r.upgraded(r.first, "2.0.0")
	r.restart(func() {
		r.whole.chart = before
		r.whole.release("3.0.0", nil)
	})
	r.upgraded(r.first, "3.0.0")
}

func (r *tour) blocked() {
	r.create(settingsMap(map[string]string{"BlockDeletion": "true"}))
	r.awaitMetric(1, "custom_config_applied")
	r.stuck, r.attached = r.serviceInstance("users", "an-instance", foreign), r.serviceBinding("users", "a-binding", foreign)
	r.serviceInstance("others", "an-instance")
	r.serviceBinding("others", "a-binding")
	r.bindingSecret("others", "a-binding", nil)
	r.delete(r.first)
	r.await(r.first, v1alpha1.StateWarning, v1alpha1.ReasonNotCleaned)
	r.delete(deployment())
	testkit.Eventually(r.t, waitTimeout, "the operand comes back", func() bool { return r.exists(deployment()) })
}

func (r *tour) hardDelete() {
	r.patch(r.first, `{"metadata":{"labels":{"force-delete":"true"}}}`)
	for _, o := range []*unstructured.Unstructured{r.attached, r.stuck} {
		testkit.Eventually(r.t, waitTimeout, title(o)+" is to go", func() bool { return r.exists(o) && o.GetDeletionTimestamp() != nil })
		r.unstick(o)
	}
	r.awaitGone(r.first)
	r.ready(r.second)
	r.twice(r.second)
	r.delete(settingsMap(nil))
	r.awaitMetric(0, "custom_config_applied")
}

func (r *tour) softDelete() {
	for _, namespace := range []string{"users", "others"} {
		r.serviceInstance(namespace, "an-instance", foreign)
		r.bindingSecret(namespace, "a-binding", r.serviceBinding(namespace, "a-binding", foreign))
	}
	r.delete(r.second)
	r.until(r.second, "the hard delete begins", func() bool { return r.second.Status.Deprovisioning != nil })
	r.clock.Advance(r.settings.HardDeleteTimeout + time.Second)
	r.awaitGone(r.second)
	r.nothingLeft()
}

func (r *tour) operandFirst() {
	r.create(settingsMap(map[string]string{"OperandFirst": "true"}))
	r.awaitMetric(1, "custom_config_applied")
	third := r.operator("a-third")
	r.ready(third)
	r.serviceInstance("users", "an-instance")
	r.delete(third)
	r.awaitGone(third)
	r.nothingLeft()
}
