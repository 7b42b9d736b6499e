package app_test

import (
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
	"github.com/kyma-project/keb/services/btp-manager/internal/render"
	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

const (
	account     = "btp-manager"
	accountUser = "system:serviceaccount:" + kymaSystem + ":" + account
	managerDir  = "../../../../deploy/helm/btp-manager"
)

// roles is the ServiceAccount of BTP Manager with its roles, as rendered from its chart.
type roles []client.Object

// chartRoles renders the roles.
func chartRoles(t *testing.T) roles {
	t.Helper()
	files, err := kubetest.RenderChart(t, managerDir, "", kubetest.Release{Name: "release", Namespace: kymaSystem})
	require.NoError(t, err)
	var all roles
	for file, content := range files {
		if name := path.Base(file); name != "rbac.yaml" && name != "serviceaccount.yaml" {
			if strings.Contains(content, "apiVersion: rbac.authorization.k8s.io/") {
				t.Errorf("%s has roles that this test does not check", name)
			}
			continue
		}
		for document := range strings.SplitSeq(content, "\n---\n") {
			o, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode([]byte(document), nil, nil)
			if err != nil {
				t.Fatalf("%s: %v\n%s", file, err, document)
			}
			all = append(all, o.(client.Object))
		}
	}
	return all
}

// find returns the ServiceAccount's only object of a type.
func find[T client.Object](t *testing.T, all roles) T {
	t.Helper()
	var found []T
	for _, o := range all {
		if is, ok := o.(T); ok && o.GetName() == account {
			found = append(found, is)
		}
	}
	if len(found) != 1 {
		t.Fatalf("the chart has %d objects of type %T named %s, want 1", len(found), *new(T), account)
	}
	return found[0]
}

// rights returns the rights that bindings grant to the ServiceAccount.
func (all roles) rights(t *testing.T) []right {
	t.Helper()
	var out []right
	for _, o := range all {
		var subjects []rbacv1.Subject
		var ref rbacv1.RoleRef
		switch o := o.(type) {
		case *rbacv1.ClusterRoleBinding:
			subjects, ref = o.Subjects, o.RoleRef
		case *rbacv1.RoleBinding:
			subjects, ref = o.Subjects, o.RoleRef
		default:
			continue
		}
		ours := rbacv1.Subject{Kind: "ServiceAccount", Namespace: kymaSystem, Name: account}
		if !slices.Contains(subjects, ours) {
			continue
		}
		if ref.Name != account {
			t.Errorf("%T %s binds %s %s, which this test does not check", o, o.GetName(), ref.Kind, ref.Name)
			continue
		}
		if ref.Kind == "Role" {
			out = append(out, rightsOf(find[*rbacv1.Role](t, all).Rules, o.GetNamespace())...)
		} else {
			out = append(out, rightsOf(find[*rbacv1.ClusterRole](t, all).Rules, o.GetNamespace())...)
		}
	}
	return out
}

// operandNeeds returns the rights that BTP Manager needs only because the operand's chart grants them.
func (s *system) operandNeeds() []need {
	s.t.Helper()
	c, err := render.Load(s.chart)
	if err != nil {
		s.t.Fatal(err)
	}
	objects, err := c.Render(render.Release{Name: "x", Namespace: kymaSystem}, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	var out []need
	for _, o := range objects {
		if kind := o.GetKind(); kind != "Role" && kind != "ClusterRole" {
			continue
		}
		var role struct {
			Rules []rbacv1.PolicyRule `json:"rules"`
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			s.t.Fatal(err)
		}
		out = append(out, granted(rightsOf(role.Rules, o.GetNamespace()))...)
	}
	return out
}

// installRoles creates the ServiceAccount with which BTP Manager starts from now on, and waits until all its rights apply.
func (s *system) installRoles(all roles) {
	s.t.Helper()
	for _, o := range all {
		s.create(o)
		s.t.Cleanup(func() {
			if s.halt != nil {
				s.halt()
			}
			if err := s.Delete(s.background(), o); err != nil {
				s.t.Error(err)
			}
		})
	}
	for _, r := range all.rights(s.t) {
		s.inForce(r, true)
	}
	s.rest = s.cluster.ServiceAccountConfig(s.t, kymaSystem, account)
}

// inForce waits until the API server grants, or no longer grants, a right.
func (s *system) inForce(r right, want bool) {
	s.t.Helper()
	resource, subresource, _ := strings.Cut(r.resource, "/")
	testkit.Eventually(s.t, waitTimeout, "the API server knows about "+r.String(), func() bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: accountUser, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: r.verb, Group: r.group, Resource: resource, Subresource: subresource, Namespace: r.namespace, Name: r.name,
			},
		}}
		if err := s.Create(s.background(), review); err != nil {
			s.t.Fatal(err)
		}
		return review.Status.Allowed == want
	})
}

// rulesOf combines rights to rules.
func rulesOf(rights []right) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, r := range rights {
		rule := rbacv1.PolicyRule{APIGroups: []string{r.group}, Resources: []string{r.resource}, Verbs: []string{r.verb}}
		if r.name != "" {
			rule.ResourceNames = []string{r.name}
		}
		out = append(out, rule)
	}
	return out
}

func without(rights []right, one right) []right {
	return slices.DeleteFunc(slices.Clone(rights), func(r right) bool { return r == one })
}

// TestPermissions_Roles_AllowOnlyNeededCalls makes Kubernetes authorize every request of a BTP Manager that performs all its functions, and
// then compares its calls with the rights of its roles.
func TestPermissions_Roles_AllowOnlyNeededCalls(t *testing.T) {
	s := newSystem(t)
	for _, namespace := range []string{"users", "others", "credentials"} {
		s.clearAfter(namespace)
	}
	all := chartRoles(t)
	s.installRoles(all)
	s.settings.LeaderElect = true
	clock := testkit.NewClock(time.Now())
	s.now = clock.Now
	earlier := len(s.cluster.Audit(t))
	s.start()
	r := &tour{whole: s, clock: clock}
	r.around()
	s.stop()

	needs, forbidden := done(s.cluster.Audit(t)[earlier:])
	if len(forbidden) > 0 {
		t.Errorf("forbidden:\n%s", strings.Join(forbidden, "\n"))
	}
	needs = append(needs, s.operandNeeds()...)
	rights := all.rights(t)
	if wrong := judge(rights, needs); len(wrong) > 0 {
		t.Fatalf("the roles:\n%s", strings.Join(wrong, "\n"))
	}

	for _, tt := range []struct {
		more right
		want string
	}{
		{right{"get", "", "pods", "", ""}, "not needed: get pods everywhere"},
		{right{"update", "apps", "deployments", kymaSystem, ""}, "not needed: update deployments.apps in kyma-system"},
		{right{"delete", "rbac.authorization.k8s.io", "clusterroles", "", "cluster-admin"}, "not needed: delete clusterroles.rbac.authorization.k8s.io cluster-admin everywhere"},
		{right{"create", "services.cloud.sap.com", "serviceinstances/status", "", ""}, "not needed: create serviceinstances/status.services.cloud.sap.com everywhere"},
	} {
		t.Run("a right more is noticed: "+tt.more.String(), func(t *testing.T) {
			if diff := cmp.Diff([]string{tt.want}, judge(append(slices.Clone(rights), tt.more), needs)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	t.Run("each right less is noticed", func(t *testing.T) {
		for _, one := range rights {
			if wrong := judge(without(rights, one), needs); !slices.ContainsFunc(wrong, func(w string) bool { return strings.HasPrefix(w, "not allowed: "+one.verb+" ") }) {
				t.Errorf("without %s: %v", one, wrong)
			}
		}
	})
	for _, one := range []right{
		{"create", "networking.k8s.io", "networkpolicies", kymaSystem, ""},
		{"patch", "rbac.authorization.k8s.io", "clusterroles", "", "kyma-btp-operator-edit"},
		{"update", "services.cloud.sap.com", "servicebindings/finalizers", "", ""}, // only granted to the operand
	} {
		t.Run("Kubernetes notices a right less: "+one.String(), func(t *testing.T) {
			s := s.in(t)
			s.withhold(all, one)
			before := len(s.cluster.Audit(t))
			s.start()
			s.create(secret())
			o := s.operator("btpoperator")
			message := s.await(o, v1alpha1.StateError, v1alpha1.ReasonChartInstallFailed)
			if !strings.Contains(message, "forbidden") {
				t.Errorf("message %q", message)
			}
			s.stop()
			if _, forbidden := done(s.cluster.Audit(t)[before:]); len(forbidden) == 0 {
				t.Error("nothing was forbidden")
			}
		})
	}
}

// The credentials can be in another namespace from the first install to the deletion, also while the inventory is missing.
func TestPermissions_CredentialsNamespace_IsSufficient(t *testing.T) {
	s := newSystem(t)
	s.clearAfter("credentials")
	s.installRoles(chartRoles(t))
	earlier := len(s.cluster.Audit(t))
	s.start()
	s.create(secret("credentials_namespace", "credentials"))
	o := s.operator("btpoperator")
	s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	inventory := new(corev1.ConfigMap)
	inventory.Namespace, inventory.Name = kymaSystem, operand.InventoryName
	s.delete(inventory)
	testkit.Eventually(t, waitTimeout, "the inventory is restored", func() bool { return s.exists(inventory) })
	s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	s.stop()
	s.delete(inventory)
	s.delete(o)
	s.start()
	s.awaitGone(o)
	s.awaitGone(operandSecret("credentials"))
	s.nothingLeft()
	s.stop()
	if _, forbidden := done(s.cluster.Audit(t)[earlier:]); len(forbidden) > 0 {
		t.Errorf("forbidden:\n%s", strings.Join(forbidden, "\n"))
	}
}

// The roles contain the names of the operand's charts only. Another object with the label must block neither an install nor a deletion.
func TestPermissions_OtherRoleWithLabel_IsKept(t *testing.T) {
	s := newSystem(t)
	s.installRoles(chartRoles(t))
	other := labelledRole("of-a-user")
	s.create(other)
	s.start()
	o := s.provisioned()
	s.delete(o)
	s.awaitGone(o)
	if !s.exists(other) {
		t.Error("the ClusterRole is gone")
	}
	if !containsAll(s.log.String(), "keeping an object with our label", "ClusterRole of-a-user") {
		t.Error("the log does not name the ClusterRole")
	}
}

// withhold removes a right of the ServiceAccount until the test ends.
func (s *system) withhold(all roles, one right) {
	s.t.Helper()
	role := client.Object(find[*rbacv1.ClusterRole](s.t, all))
	rules := &find[*rbacv1.ClusterRole](s.t, all).Rules
	if one.namespace != "" {
		role, rules = find[*rbacv1.Role](s.t, all), &find[*rbacv1.Role](s.t, all).Rules
	}
	whole := *rules
	update := func(to []rbacv1.PolicyRule, allowed bool) {
		*rules = to
		if err := s.Update(s.background(), role); err != nil {
			s.t.Fatal(err)
		}
		s.inForce(one, allowed)
	}
	s.clean()
	s.t.Cleanup(func() {
		s.clean()
		update(whole, true)
	})
	update(rulesOf(without(rightsOf(whole, one.namespace), one)), false)
}
