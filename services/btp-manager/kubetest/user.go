package kubetest

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// As returns the configuration of a connection as this user, with a client certificate. RBAC applies: without a binding the user has only
// the rights of every user, which is API discovery.
func (c *Cluster) As(t testing.TB, user string, groups ...string) *rest.Config {
	t.Helper()
	u, err := c.Environment.AddUser(envtest.User{Name: user, Groups: groups}, rest.AnonymousClientConfig(c.Config))
	if err != nil {
		t.Fatalf("add the user %s: %v", user, err)
	}
	return u.Config()
}

// ServiceAccountConfig returns the configuration of a connection as a pod of a ServiceAccount, with a token that is valid for an hour and
// while the ServiceAccount exists. RBAC applies.
func (c *Cluster) ServiceAccountConfig(t testing.TB, namespace, name string) *rest.Config {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	request := &authenticationv1.TokenRequest{}
	if err := c.Client(t, client.Options{}).SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatalf("get a token for the ServiceAccount %s/%s: %v", namespace, name, err)
	}
	cfg := rest.AnonymousClientConfig(c.Config)
	cfg.BearerToken = request.Status.Token
	return cfg
}
