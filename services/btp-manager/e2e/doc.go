// Package e2e holds tests of BTP Manager as users meet it: the program itself in a process of its own, that knows the cluster by a
// kubeconfig and has the roles of its Helm chart.
//
// The cluster is real as far as one machine allows. Where a part has to be played, it is this:
//
//   - The pods of the manager's Deployment come from the chart and are scheduled, but the simulated node runs no containers. The
//     manager that acts is the child process. Its token is that of the chart's ServiceAccount, and its flags are the args of the
//     chart's Deployment; only the addresses of metrics and probes are other ones, because pods have addresses and processes share
//     one.
//   - The operand's pods run no containers either. The kube-apiserver reaches the operand's webhooks through a proxy, as in clusters
//     whose control plane is in another network (--egress-selector-config-file), and at the proxy's other end a stand-in
//     answers with the certificate in the Secret that the operand's pods mount. The chart's webhooks are those that users get, with
//     failurePolicy Fail: without a certificate that the kube-apiserver trusts, no service instance could be created here.
//   - What the operand does to service instances and bindings, the tests do: its finalizer is set and cleared by them.
//
// `make test` runs what needs no controllers, with a kube-apiserver and etcd. `make e2e SUITE=btpmanager` adds the whole cluster.
package e2e
