package controller

import (
	"cmp"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

// Leader is the oldest BtpOperator. Timestamps have a resolution of a second: among equally old ones the namespace and then the
// name decide, so that every look finds the same one. One that is being deleted and has nothing of ours left to clean up does not
// count. It answers nil when there is none.
func Leader(all []v1alpha1.BtpOperator) *v1alpha1.BtpOperator {
	var leader *v1alpha1.BtpOperator
	for i := range all {
		cr := &all[i]
		if !cr.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(cr, v1alpha1.Finalizer) {
			continue
		}
		if leader == nil || older(cr, leader) {
			leader = cr
		}
	}
	return leader
}

func older(a, b *v1alpha1.BtpOperator) bool {
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
	) < 0
}
