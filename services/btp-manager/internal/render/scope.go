package render

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// crdKind is the kind of a custom resource definition.
const crdKind = "CustomResourceDefinition"

// scope reports whether the objects of a kind are namespaced.
type scope bool

const (
	clusterScoped scope = false
	namespaced    scope = true
)

// builtIn returns the scope of a built-in kind. There is no cluster to query, hence the list; a test compares it with a
// kube-apiserver.
func builtIn(kind schema.GroupKind) (s scope, known bool) {
	switch kind.Group {
	case "":
		switch kind.Kind {
		case "Namespace", "Node", "PersistentVolume":
			return clusterScoped, true
		case "ConfigMap", "Endpoints", "Event", "LimitRange", "PersistentVolumeClaim", "Pod", "PodTemplate",
			"ReplicationController", "ResourceQuota", "Secret", "Service", "ServiceAccount":
			return namespaced, true
		}
	case "apps":
		switch kind.Kind {
		case "ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet":
			return namespaced, true
		}
	case "batch":
		switch kind.Kind {
		case "CronJob", "Job":
			return namespaced, true
		}
	case "autoscaling":
		return namespaced, kind.Kind == "HorizontalPodAutoscaler"
	case "policy":
		return namespaced, kind.Kind == "PodDisruptionBudget"
	case "coordination.k8s.io":
		return namespaced, kind.Kind == "Lease"
	case "scheduling.k8s.io":
		return clusterScoped, kind.Kind == "PriorityClass"
	case "apiextensions.k8s.io":
		return clusterScoped, kind.Kind == crdKind
	case "apiregistration.k8s.io":
		return clusterScoped, kind.Kind == "APIService"
	case "networking.k8s.io":
		switch kind.Kind {
		case "IngressClass":
			return clusterScoped, true
		case "Ingress", "NetworkPolicy":
			return namespaced, true
		}
	case "rbac.authorization.k8s.io":
		switch kind.Kind {
		case "ClusterRole", "ClusterRoleBinding":
			return clusterScoped, true
		case "Role", "RoleBinding":
			return namespaced, true
		}
	case "admissionregistration.k8s.io":
		switch kind.Kind {
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
			"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			return clusterScoped, true
		}
	}
	return clusterScoped, false
}

// definedScopes returns the scopes of the kinds that the chart defines.
func definedScopes(objs []*unstructured.Unstructured) map[schema.GroupKind]scope {
	scopes := map[schema.GroupKind]scope{}
	for _, o := range objs {
		if o.GetKind() != crdKind {
			continue
		}
		group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
		where, _, _ := unstructured.NestedString(o.Object, "spec", "scope")
		scopes[schema.GroupKind{Group: group, Kind: kind}] = where == "Namespaced"
	}
	return scopes
}

// place sets the namespace of o.
func place(o *unstructured.Unstructured, namespace string, defined map[schema.GroupKind]scope) error {
	kind := o.GroupVersionKind().GroupKind()
	where, known := builtIn(kind)
	if s, ok := defined[kind]; ok {
		where, known = s, true
	}
	switch {
	case !known:
		return fmt.Errorf("%s: it is not known whether a %s is namespaced", describe(o), kind)
	case where == clusterScoped && o.GetNamespace() != "":
		return fmt.Errorf("%s: a %s is not namespaced", describe(o), kind)
	case where == namespaced && o.GetNamespace() == "":
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
