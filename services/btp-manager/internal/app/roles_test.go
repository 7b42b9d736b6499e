package app_test

import (
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/libs/testkit"
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
	files, err := kubetest.RenderChart(t, managerDir, "", kubetest.ChartRelease{Name: "release", Namespace: kymaSystem})
	require.NoError(t, err)
	for file, content := range files {
		if name := path.Base(file); name != "rbac.yaml" && name != "serviceaccount.yaml" {
			if strings.Contains(content, "apiVersion: rbac.authorization.k8s.io/") {
				t.Errorf("%s has roles that this test does not check", name)
			}
			delete(files, file)
		}
	}
	return kubetest.Objects(t, clientgoscheme.Scheme, files)
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
			out = append(out, rightsOf(kubetest.One[*rbacv1.Role](t, all, account).Rules, o.GetNamespace())...)
		} else {
			out = append(out, rightsOf(kubetest.One[*rbacv1.ClusterRole](t, all, account).Rules, o.GetNamespace())...)
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
	objects, err := c.Render(render.Release{Name: "x", Namespace: kymaSystem})
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
		s.inForce(r)
	}
	s.rest = s.cluster.ServiceAccountConfig(s.t, kymaSystem, account)
}

// inForce waits until the API server grants a right.
func (s *system) inForce(r right) {
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
		return review.Status.Allowed
	})
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
	if wrong := judge(all.rights(t), needs); len(wrong) > 0 {
		t.Errorf("the roles:\n%s", strings.Join(wrong, "\n"))
	}
}
