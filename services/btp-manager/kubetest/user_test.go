package kubetest_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestAs_User_HasOnlyItsRights(t *testing.T) {
	cluster := shared.Cluster(t)
	admin := cluster.Client(t, client.Options{})
	ns := namespace(t, admin)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "manager"}}
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "manager"},
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "readers"},
		},
	}
	for _, o := range []client.Object{account, role, binding} {
		require.NoError(t, admin.Create(t.Context(), o))
	}

	for name, c := range map[string]struct {
		cfg     *rest.Config
		user    string
		allowed bool
	}{
		"a ServiceAccount with a role": {cluster.ServiceAccountConfig(t, ns, "manager"), "system:serviceaccount:" + ns + ":manager", true},
		"a user of a group with one":   {cluster.As(t, "reader", "readers"), "reader", true},
		"a user without one":           {cluster.As(t, "stranger"), "stranger", false},
	} {
		t.Run(name, func(t *testing.T) {
			cl, err := client.New(c.cfg, client.Options{})
			require.NoError(t, err)
			self := &authenticationv1.SelfSubjectReview{}
			require.NoError(t, cl.Create(t.Context(), self))
			if self.Status.UserInfo.Username != c.user {
				t.Errorf("the kube-apiserver sees %s, want %s", self.Status.UserInfo.Username, c.user)
			}
			// Everything else is forbidden.
			if err := cl.List(t.Context(), &corev1.SecretList{}, client.InNamespace(ns)); !apierrors.IsForbidden(err) {
				t.Errorf("list Secrets: %v, want it forbidden", err)
			}
			err = cl.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(ns))
			if c.allowed && err != nil || !c.allowed && !apierrors.IsForbidden(err) {
				t.Errorf("list ConfigMaps: %v, allowed: %v", err, c.allowed)
			}
		})
	}
}

func TestAudit_User_LogsItsCalls(t *testing.T) {
	cluster := shared.Cluster(t)
	admin := cluster.Client(t, client.Options{})
	cl, err := client.New(cluster.As(t, watched, "system:masters"), client.Options{})
	require.NoError(t, err)
	ns := namespace(t, admin)
	before := len(cluster.Audit(t))
	for _, c := range []client.Client{cl, admin} {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "made-"}}
		require.NoError(t, c.Create(t.Context(), cm))
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(cm), cm))
	}

	var did []string
	for _, e := range cluster.Audit(t)[before:] {
		if e.User.Username != watched {
			t.Errorf("the log has a call of %s", e.User.Username)
		}
		if e.ObjectRef != nil && e.ObjectRef.Namespace == ns {
			did = append(did, e.Verb+" "+e.ObjectRef.Resource)
		}
	}
	if want := []string{"create configmaps", "get configmaps"}; !slices.Equal(did, want) {
		t.Errorf("the log is %q, want %q", did, want)
	}
	if again := cluster.Audit(t); len(again) < before+len(did) {
		t.Errorf("the log shrank to %d events", len(again))
	}
}
