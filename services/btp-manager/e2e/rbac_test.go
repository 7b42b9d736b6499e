package e2e_test

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

// everShipped are the cluster-scoped objects of all releases of the operand's chart. No line may be removed: an object may still have to be
// removed in some cluster.
func everShipped() []string {
	return []string{
		"customresourcedefinitions servicebindings.services.cloud.sap.com",
		"customresourcedefinitions serviceinstances.services.cloud.sap.com",
		"clusterroles kyma-btp-operator-edit",
		"clusterroles kyma-btp-operator-view",
		"clusterroles sap-btp-operator-manager-role",
		"clusterrolebindings sap-btp-operator-manager-rolebinding",
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
