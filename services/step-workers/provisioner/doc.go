// Package provisioner is the worker of the Runtime Provisioner. It creates and removes the runtime of an instance, and provides its
// kubeconfig to the steps of the stage (docs/contracts/runtime-provisioner.md).
package provisioner
