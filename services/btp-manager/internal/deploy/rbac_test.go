package deploy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
	"github.com/kyma-project/keb/services/btp-manager/internal/render"
	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

// everShipped are the cluster-scoped objects of all releases of the operand's chart, and of those of the original manager. No line may be
// removed: an object may still have to be removed in some cluster.
func everShipped() []string {
	return []string{
		"customresourcedefinitions servicebindings.services.cloud.sap.com",
		"customresourcedefinitions serviceinstances.services.cloud.sap.com",
		"clusterroles kyma-btp-operator-edit",
		"clusterroles kyma-btp-operator-view",
		"clusterroles sap-btp-operator-manager-role",
		"clusterroles sap-btp-operator-metrics-reader",
		"clusterroles sap-btp-operator-proxy-role",
		"clusterrolebindings sap-btp-operator-manager-rolebinding",
		"clusterrolebindings sap-btp-operator-proxy-rolebinding",
		"mutatingwebhookconfigurations sap-btp-operator-mutating-webhook-configuration",
		"validatingwebhookconfigurations sap-btp-operator-validating-webhook-configuration",
	}
}

// access is the rights of a subject: in one namespace, and in all.
type access struct{ cluster, namespace []rbacv1.PolicyRule }

func managerAccess(t *testing.T) access {
	t.Helper()
	objects := rendered(t, "")
	return access{
		cluster:   kubetest.One[*rbacv1.ClusterRole](t, objects, "btp-manager").Rules,
		namespace: kubetest.One[*rbacv1.Role](t, objects, "btp-manager").Rules,
	}
}

// may reports whether rules allow a verb. Without a name the rule must not be limited to names.
func may(rules []rbacv1.PolicyRule, verb, group, resource, name string) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		named := len(r.ResourceNames) == 0 || name != "" && slices.Contains(r.ResourceNames, name)
		return named && slices.Contains(r.Verbs, verb) && slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource)
	})
}

func TestRoles_Rules_HaveNoWildcard(t *testing.T) {
	t.Parallel()
	for _, role := range kubetest.All[*rbacv1.ClusterRole](rendered(t, everything)) {
		for _, r := range role.Rules {
			for _, part := range [][]string{r.APIGroups, r.Resources, r.Verbs, r.ResourceNames, r.NonResourceURLs} {
				if slices.ContainsFunc(part, func(s string) bool { return strings.Contains(s, "*") }) {
					t.Errorf("%s: %v", describe(role), r)
				}
			}
			for _, verb := range []string{"escalate", "bind", "impersonate"} {
				if slices.Contains(r.Verbs, verb) {
					t.Errorf("%s allows %s", describe(role), verb)
				}
			}
		}
	}
	for _, r := range managerAccess(t).namespace {
		if strings.Contains(r.String(), "*") {
			t.Errorf("Role btp-manager: %v", r)
		}
	}
}

// TestRoles_Operand_CanBeCreated checks the objects of the operand's chart: Kubernetes lets the manager apply them only if it may write
// them, and has the rights that the roles among them grant.
func TestRoles_Operand_CanBeCreated(t *testing.T) {
	t.Parallel()
	allowed := managerAccess(t)
	c, err := render.Load(operand.Chart())
	require.NoError(t, err)
	objects, err := c.Render(render.Release{Name: "sap-btp-operator", Namespace: "kyma-system"}, nil)
	require.NoError(t, err)
	roles := 0
	var outside []string
	for _, o := range objects {
		gvk := o.GroupVersionKind()
		plural, _ := apimeta.UnsafeGuessKindToResource(gvk)
		// Secrets need cluster-wide rights, because the operand writes them everywhere.
		rules, name := allowed.cluster, o.GetName()
		if o.GetNamespace() != "" && gvk.Kind != "Secret" {
			rules = allowed.namespace
		}
		if o.GetNamespace() == "" {
			outside = append(outside, plural.Resource+" "+name)
			for _, verb := range []string{"create", "patch", "delete"} {
				if may(rules, verb, gvk.Group, plural.Resource, "") {
					t.Errorf("the manager may %s any %s, want those of the chart only", verb, gvk.Kind)
				}
			}
		}
		for _, verb := range []string{"get", "create", "patch", "delete"} {
			if !may(rules, verb, gvk.Group, plural.Resource, name) {
				t.Errorf("the manager may not %s the %s %s", verb, gvk.Kind, name)
			}
		}
		for _, verb := range []string{"list", "watch"} {
			if !may(rules, verb, gvk.Group, plural.Resource, "") {
				t.Errorf("the manager may not %s objects of the kind %s", verb, gvk.Kind)
			}
		}
		granted := allowed.cluster
		var role struct {
			Rules []rbacv1.PolicyRule `json:"rules"`
		}
		switch gvk.Kind {
		case "Role":
			granted = slices.Concat(allowed.cluster, allowed.namespace)
		case "ClusterRole":
		default:
			continue
		}
		roles++
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role))
		for _, r := range role.Rules {
			onward(t, granted, name, r)
		}
	}
	if roles < 3 {
		t.Errorf("the operand's chart has %d roles, so this test shows little", roles)
	}
	for _, o := range outside {
		if !slices.Contains(everShipped(), o) {
			t.Errorf("%s is not in the list of what was ever shipped", o)
		}
	}
}

// onward checks that the manager has the rights of a role of the render.
func onward(t *testing.T, granted []rbacv1.PolicyRule, role string, r rbacv1.PolicyRule) {
	t.Helper()
	names := r.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, group := range r.APIGroups {
		for _, resource := range r.Resources {
			for _, verb := range r.Verbs {
				for _, name := range names {
					if !may(granted, verb, group, resource, name) {
						t.Errorf("the operand's role %s allows to %s %s.%s %s, the manager may not", role, verb, resource, group, name)
					}
				}
			}
		}
	}
}

func TestRoles_ShippedKinds_CanBeRemoved(t *testing.T) {
	t.Parallel()
	var named []string
	for _, r := range managerAccess(t).cluster {
		for _, name := range r.ResourceNames {
			if !slices.Contains(r.Verbs, "delete") {
				t.Errorf("%s %s may not be deleted", r.Resources[0], name)
			}
			named = append(named, r.Resources[0]+" "+name)
		}
	}
	want := slices.Clone(everShipped())
	slices.Sort(want)
	slices.Sort(named)
	if !slices.Equal(want, named) {
		t.Errorf("named in the ClusterRole: %v\never shipped: %v", named, want)
	}
}
