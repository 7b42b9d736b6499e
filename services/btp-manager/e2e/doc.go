// Package e2e contains tests of BTP Manager as it ships: its program, its Helm chart, its alerts and its dashboard.
//
// The program runs as a process. It gets a kubeconfig with the token of the chart's ServiceAccount, so that the roles of the chart apply. Its
// flags are the args of the chart's Deployment, except the addresses of metrics and probes. These parts of the cluster are simulated:
//
//   - The simulated node runs no containers, so neither the manager's nor the operand's pods run.
//   - The kube-apiserver reaches the operand's webhooks through a proxy (--egress-selector-config-file), which ends at a simulator that accepts
//     every request. It uses the certificate in the Secret that the operand's pods would mount. The webhooks have failurePolicy Fail: if the
//     kube-apiserver did not trust the certificate, it would reject every service instance.
//   - The tests set and remove the operand's finalizer on service instances and bindings.
//
// Without a kube-apiserver, only the tests of the chart's files run. `make e2e SUITE=btpmanager` adds a complete cluster with controllers.
package e2e
