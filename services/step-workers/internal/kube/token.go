package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
)

// The resources that grant access to a cluster.
var (
	ServiceAccounts     = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	ClusterRoles        = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	ClusterRoleBindings = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}
)

// Token creates a token of a ServiceAccount and returns its expiry, which may differ from the requested lifetime.
func (c *Client) Token(ctx context.Context, namespace, account string, lifetime time.Duration) (string, time.Time, error) {
	request := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"metadata": map[string]any{"name": account, "namespace": namespace},
		"spec":     map[string]any{"expirationSeconds": int64(lifetime / time.Second)},
	}}
	const resource = "serviceaccounts/token"
	made, err := c.in(ServiceAccounts, namespace).Create(ctx, request, metav1.CreateOptions{}, "token")
	if err != nil {
		return "", time.Time{}, c.wrap("create", resource, account, err)
	}
	token, _, _ := unstructured.NestedString(made.Object, "status", "token")
	text, _, _ := unstructured.NestedString(made.Object, "status", "expirationTimestamp")
	ends, err := time.Parse(time.RFC3339, text)
	if err != nil || token == "" {
		return "", time.Time{}, &Error{
			System: c.system, Verb: "create", Resource: resource, Name: account, Err: errors.New("the answer has no token or no expiry"),
		}
	}
	return token, ends, nil
}

// Cluster is the address of a cluster, without credentials.
type Cluster struct {
	Server string
	// CA is the certificate authority in PEM; empty for a public one.
	CA []byte
}

// ClusterOf returns the cluster of the current context of a kubeconfig. Its errors wrap ErrKubeconfig.
func ClusterOf(kubeconfig []byte) (Cluster, error) {
	raw, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return Cluster{}, fmt.Errorf("%w: not a kubeconfig", ErrKubeconfig)
	}
	current := raw.Contexts[raw.CurrentContext]
	if current == nil || raw.Clusters[current.Cluster] == nil || raw.Clusters[current.Cluster].Server == "" {
		return Cluster{}, fmt.Errorf("%w: it has no usable current context", ErrKubeconfig)
	}
	c := raw.Clusters[current.Cluster]
	return Cluster{Server: c.Server, CA: c.CertificateAuthorityData}, nil
}
