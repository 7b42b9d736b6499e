// Package v1alpha1 defines the API of BTP Manager: the BtpOperator, its states, and their reasons.
//
// +kubebuilder:object:generate=true
// +groupName=operator.kyma-project.io
package v1alpha1

//go:generate go tool controller-gen object paths=.
//go:generate go tool controller-gen crd:generateEmbeddedObjectMeta=false paths=. output:crd:dir=../../../../deploy/helm/btp-manager/templates
