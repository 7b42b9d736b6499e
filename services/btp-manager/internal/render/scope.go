package render

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// crdKind is the kind of a custom resource definition.
const crdKind = "CustomResourceDefinition"

// builtIn reports whether the objects of a built-in kind are namespaced. There is no cluster to query, hence the list of the chart's kinds; a
// test compares it with a kube-apiserver.
func builtIn(kind schema.GroupKind) (namespaced, known bool) {
	switch kind.Group {
	case "":
		known = slices.Contains([]string{"ConfigMap", "Secret", "Service", "ServiceAccount"}, kind.Kind)
		return true, known
	case "apps":
		return true, kind.Kind == "Deployment"
	case "networking.k8s.io":
		return true, kind.Kind == "NetworkPolicy"
	case "rbac.authorization.k8s.io":
		namespaced = kind.Kind == "Role" || kind.Kind == "RoleBinding"
		return namespaced, namespaced || kind.Kind == "ClusterRole" || kind.Kind == "ClusterRoleBinding"
	case "apiextensions.k8s.io":
		return false, kind.Kind == crdKind
	case "admissionregistration.k8s.io":
		return false, kind.Kind == "MutatingWebhookConfiguration" || kind.Kind == "ValidatingWebhookConfiguration"
	}
	return false, false
}

// place sets the namespace of o.
func place(o *unstructured.Unstructured, namespace string) error {
	kind := o.GroupVersionKind().GroupKind()
	namespaced, known := builtIn(kind)
	switch {
	case !known:
		return fmt.Errorf("%s: it is not known whether a %s is namespaced", describe(o), kind)
	case !namespaced && o.GetNamespace() != "":
		return fmt.Errorf("%s: a %s is not namespaced", describe(o), kind)
	case namespaced && o.GetNamespace() == "":
		if namespace == "" {
			return fmt.Errorf("%s: neither the chart nor the release names a namespace", describe(o))
		}
		o.SetNamespace(namespace)
	}
	return nil
}

// describe names an object for people.
func describe(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}
