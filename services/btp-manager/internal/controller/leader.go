package controller

import (
	"cmp"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

// Leader returns the oldest BtpOperator, or nil. Timestamps have a resolution of a second: among equally old ones the namespace and then
// the name decide, so that the result is always the same. It ignores one that is being deleted without anything left to clean
// up.
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
