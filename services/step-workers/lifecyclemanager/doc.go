// Package lifecyclemanager is the worker of the Lifecycle Manager. It creates and deletes the Kyma resource of a runtime and the Secret
// with its kubeconfig in the control plane (docs/contracts/lifecycle-manager.md).
package lifecyclemanager
