package render

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// rank is when a kind is applied. What others need goes first; what opens the cluster's API to the operand goes last, since its
// webhooks refuse every change of an instance or a binding until the operand answers.
func rank(kind string) int {
	switch kind {
	case "Namespace", "PriorityClass":
		return 0
	case crdKind:
		return 1
	case "ServiceAccount", "ConfigMap", "Secret", "ResourceQuota", "LimitRange":
		return 2
	case "NetworkPolicy": // before the pods that they are about
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

// order sorts objs by rank, then by what they are called, so that the order never depends on the files of the chart.
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
