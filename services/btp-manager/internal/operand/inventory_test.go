package operand_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
)

func (b *bundle) inventory() *corev1.ConfigMap {
	b.t.Helper()
	cm := new(corev1.ConfigMap)
	if err := b.client.Get(b.t.Context(), client.ObjectKey{Namespace: namespace, Name: operand.InventoryName}, cm); err != nil {
		b.t.Fatal(err)
	}
	return cm
}

func TestApply_Inventory_ListsAppliedObjects(t *testing.T) {
	b := setup(t)
	objs := chart(t, "1")
	b.apply(objs)
	cm := b.inventory()
	equal(t, "labels", cm.Labels, map[string]string{
		"app.kubernetes.io/managed-by": "btp-manager", "chart-version": "1", "kyma-project.io/module": "btp-operator",
	})
	if cm.Data["sha256"] == "" || len(cm.Data) != 2 {
		t.Errorf("the inventory holds more than the objects and their checksum: %v", cm.Data)
	}
	equal(t, "objects", cm.Data["objects"], `admissionregistration.k8s.io/v1 MutatingWebhookConfiguration sap-btp-operator-mutating-webhook-configuration
admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration sap-btp-operator-validating-webhook-configuration
apiextensions.k8s.io/v1 CustomResourceDefinition gadgets.keb.test
apps/v1 Deployment kyma-system/sap-btp-operator-controller-manager
networking.k8s.io/v1 NetworkPolicy kyma-system/operand
rbac.authorization.k8s.io/v1 ClusterRole operand
rbac.authorization.k8s.io/v1 ClusterRoleBinding operand
rbac.authorization.k8s.io/v1 Role kyma-system/operand
rbac.authorization.k8s.io/v1 RoleBinding kyma-system/operand
v1 ConfigMap kyma-system/operand-config
v1 Secret kyma-system/operand-credentials
v1 Service kyma-system/hooks
v1 ServiceAccount kyma-system/operand
`)
	b.apply(chart(t, "2"))
	equal(t, "chart version", b.inventory().Labels["chart-version"], "2")
}

// Each kind of damaged inventory is used with the next chart, which lacks the ConfigMap "obsolete".
func TestApply_DamagedInventory_RemovesObsolete(t *testing.T) {
	b := setup(t)
	for _, c := range []struct {
		name   string
		breaks func(*corev1.ConfigMap)
	}{
		{"deleted", nil},
		{"without its key", func(cm *corev1.ConfigMap) { cm.Data = nil }},
		{"empty", func(cm *corev1.ConfigMap) { cm.Data["objects"] = "" }},
		{"cut off", func(cm *corev1.ConfigMap) { cm.Data["objects"] = cm.Data["objects"][:20] }},
		{"garbage", func(cm *corev1.ConfigMap) { cm.Data["objects"] = "\x7f{[\n///\na b c d\n" }},
		{"a line removed", func(cm *corev1.ConfigMap) { cm.Data["objects"] = "v1 ConfigMap kyma-system/config\n" }},
		{"a line with too many slashes", func(cm *corev1.ConfigMap) { cm.Data["objects"] = "v1 ConfigMap a/b/c" }},
		{"a line without a version", func(cm *corev1.ConfigMap) { cm.Data["objects"] = "/ ConfigMap a" }},
		{"unlabelled", func(cm *corev1.ConfigMap) { cm.Labels = nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := *b
			b.t = t
			b.empty(t.Context())
			stays, obsolete := configMap(t, "1", "config", "one"), configMap(t, "1", "obsolete", "one")
			own := secret(t, "1", "ca-server-cert")
			b.make(own)
			b.apply([]*unstructured.Unstructured{stays, obsolete})
			cm := b.inventory()
			if c.breaks == nil {
				require.NoError(t, b.client.Delete(t.Context(), cm))
			} else {
				c.breaks(cm)
				require.NoError(t, b.client.Update(t.Context(), cm))
			}
			done := b.apply([]*unstructured.Unstructured{stays})
			equal(t, "removed", done.Removed, []operand.Ref{operand.RefOf(obsolete)})
			equal(t, "objects", b.names(), []string{"ConfigMap kyma-system/config", "Secret kyma-system/ca-server-cert"})
			equal(t, "inventory", b.inventory().Data["objects"], "v1 ConfigMap kyma-system/config\n")
			equal(t, "labels", b.inventory().Labels["app.kubernetes.io/managed-by"], "btp-manager")
		})
	}
}

func TestApply_ForeignObjectInInventory_IsKept(t *testing.T) {
	b := setup(t)
	stays := configMap(t, "1", "config", "one")
	b.apply([]*unstructured.Unstructured{stays})
	users := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "users"}}
	require.NoError(t, b.client.Create(t.Context(), users))
	cm := b.inventory()
	cm.Data["objects"] += "v1 Secret elsewhere/users\nv1 ConfigMap kyma-system/none\nv1 NoSuchKind kyma-system/x\nno.group/v1 Thing x\nv1 Namespace kyma-system\nv1 ConfigMap kyma-system/..\nv1 ConfigMap config\n"
	require.NoError(t, b.client.Update(t.Context(), cm))
	equal(t, "applied", b.apply([]*unstructured.Unstructured{stays}), operand.Applied{})
	equal(t, "objects", b.names(), []string{"ConfigMap kyma-system/config", "Secret elsewhere/users"})
	equal(t, "inventory", b.inventory().Data["objects"], "v1 ConfigMap kyma-system/config\n")
}

// The inventory is written first: the next Apply knows the objects that a failed Apply has created.
func TestApply_AfterFailure_RemovesObsolete(t *testing.T) {
	b := setup(t)
	good := configMap(t, "1", "config", "one")
	bad := object(t, "1", "{apiVersion: v1, kind: Service, metadata: {name: bad}, spec: {ports: [{port: 99999}]}}")
	_, err := b.operand.Apply(t.Context(), []*unstructured.Unstructured{bad, good})
	if err == nil || !strings.Contains(err.Error(), "Service kyma-system/bad") {
		t.Errorf("the error does not name the object: %v", err)
	}
	if !slices.Contains(b.names(), "ConfigMap kyma-system/config") {
		t.Error("one object that failed kept the other from being applied")
	}
	done := b.apply([]*unstructured.Unstructured{configMap(t, "1", "other", "one")})
	equal(t, "removed", done.Removed, []operand.Ref{operand.RefOf(good)})
	equal(t, "objects", b.names(), []string{"ConfigMap kyma-system/other"})
}
