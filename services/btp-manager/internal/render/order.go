package render

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// rank returns the position of a kind in the order of application. Prerequisites are first. Webhooks are last, because they reject every
// change of an instance or a binding until the operand answers.
func rank(kind string) int {
	switch kind {
	case "Namespace", "PriorityClass":
		return 0
	case crdKind:
		return 1
	case "ServiceAccount", "ConfigMap", "Secret", "ResourceQuota", "LimitRange":
		return 2
	case "NetworkPolicy": // before the pods that they select
		return 3
	case "ClusterRole", "Role":
		return 4
	case "ClusterRoleBinding", "RoleBinding":
		return 5
	case "Service":
		return 6
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		return 9
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Pod", "Job", "CronJob":
		return 8
	}
	return 7
}

// order sorts objs by rank, then by name, so that the order does not depend on the files of the chart.
func order(objs []*unstructured.Unstructured) {
	slices.SortFunc(objs, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(
			cmp.Compare(rank(a.GetKind()), rank(b.GetKind())),
			cmp.Compare(a.GetKind(), b.GetKind()),
			cmp.Compare(a.GetAPIVersion(), b.GetAPIVersion()),
			cmp.Compare(a.GetNamespace(), b.GetNamespace()),
			cmp.Compare(a.GetName(), b.GetName()),
		)
	})
}
