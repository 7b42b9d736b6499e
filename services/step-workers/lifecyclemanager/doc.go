// Package lifecyclemanager is the worker of the Lifecycle Manager: it creates the Kyma resource of a runtime and the Secret with
// its kubeconfig in the control plane, and deletes them again (docs/contracts/lifecycle-manager.md).
package lifecyclemanager
