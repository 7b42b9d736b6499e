package runtimeaccess

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

// namespace is the namespace of the ServiceAccounts. A runtime has it after its provisioning.
const namespace = "kyma-system"

// The labels and annotations of a binding's objects. The annotations contain the unmodified ids. A label is omitted for an id that is
// not a valid label value.
const (
	labelInstance = "kyma-project.io/instance-id"
	labelBinding  = "kyma-project.io/binding-id"
	labelManager  = "app.kubernetes.io/managed-by"
	manager       = "kcp-kyma-environment-broker"
)

// rules are the permissions of a binding: those of an administrator for all resources, as in the original broker
// (docs/contracts/broker.md#bindings). They exclude URLs that are not resources, such as /metrics.
var rules = []any{map[string]any{
	"apiGroups": []any{"*"}, "resources": []any{"*"}, "verbs": []any{"*"},
}}

// access is the set of objects of one binding in a runtime. They have the same name.
type access struct {
	name        string
	labels      map[string]any
	annotations map[string]any
}

var (
	names       = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	labelValues = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
)

// maxName leaves space for the prefix within the limit of 63 characters.
const maxName = 50

func newAccess(instanceID, bindingID string) access {
	id := bindingID
	if len(id) > maxName || !names.MatchString(id) {
		// Platforms may send any text as an id; Kubernetes permits less.
		sum := sha256.Sum256([]byte(bindingID))
		id = hex.EncodeToString(sum[:16])
	}
	a := access{
		name:        "kyma-binding-" + id,
		labels:      map[string]any{labelManager: manager},
		annotations: map[string]any{labelInstance: instanceID, labelBinding: bindingID},
	}
	for label, value := range a.annotations {
		if text, _ := value.(string); labelValues.MatchString(text) {
			a.labels[label] = text
		}
	}
	return a
}

func (a access) object(apiVersion, kind, namespace string, content map[string]any) *unstructured.Unstructured {
	meta := map[string]any{"name": a.name, "labels": a.labels, "annotations": a.annotations}
	if namespace != "" {
		meta["namespace"] = namespace
	}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": meta}}
	maps.Copy(o.Object, content)
	return o.DeepCopy()
}

const rbac = "rbac.authorization.k8s.io"

// create creates missing objects and updates different ones. It can be repeated.
func (a access) create(ctx context.Context, client *kube.Client) error {
	ns := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace},
	}}
	for _, one := range []struct {
		resource schema.GroupVersionResource
		object   *unstructured.Unstructured
	}{
		{kube.Namespaces, ns},
		{kube.ServiceAccounts, a.object("v1", "ServiceAccount", namespace, nil)},
		{kube.ClusterRoles, a.object(rbac+"/v1", "ClusterRole", "", map[string]any{"rules": rules})},
		{kube.ClusterRoleBindings, a.object(rbac+"/v1", "ClusterRoleBinding", "", map[string]any{
			"roleRef":  map[string]any{"apiGroup": rbac, "kind": "ClusterRole", "name": a.name},
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": a.name, "namespace": namespace}},
		})},
	} {
		if err := apply(ctx, client, one.resource, one.object); err != nil {
			return err
		}
	}
	return nil
}

// apply is Apply with a retry if another client has created or changed the object in the meantime.
func apply(ctx context.Context, client *kube.Client, r schema.GroupVersionResource, o *unstructured.Unstructured) error {
	var err error
	for range 3 {
		if err = client.Apply(ctx, r, o); !kube.IsConflict(err) {
			return err
		}
	}
	return err
}

// remove first deletes the permissions, then the account, which invalidates its tokens.
func (a access) remove(ctx context.Context, client *kube.Client) error {
	if err := client.Delete(ctx, kube.ClusterRoleBindings, "", a.name); err != nil {
		return err
	}
	if err := client.Delete(ctx, kube.ClusterRoles, "", a.name); err != nil {
		return err
	}
	return client.Delete(ctx, kube.ServiceAccounts, namespace, a.name)
}

// kubeconfig returns the kubeconfig of the binding as YAML.
func (a access) kubeconfig(c kube.Cluster, token string) (string, error) {
	out, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: a.name,
		Clusters:       map[string]*clientcmdapi.Cluster{a.name: {Server: c.Server, CertificateAuthorityData: c.CA}},
		Contexts:       map[string]*clientcmdapi.Context{a.name: {Cluster: a.name, AuthInfo: a.name}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{a.name: {Token: token}},
	})
	if err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	return string(out), nil
}
