// Package provisioner is the worker of the Runtime Provisioner: it creates the runtime of an instance, waits for it,
// hands its kubeconfig to the steps of the stage, and removes it again (docs/contracts/runtime-provisioner.md).
package provisioner
