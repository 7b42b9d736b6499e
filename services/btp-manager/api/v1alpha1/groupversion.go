package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion returns the group and version of the BtpOperator.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "operator.kyma-project.io", Version: "v1alpha1"}
}

// AddToScheme adds the BtpOperator to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &BtpOperator{}, &BtpOperatorList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
