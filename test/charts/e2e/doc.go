// Package e2e installs, upgrades and removes the chart deploy/helm/keb in clusters, as `make e2e SUITE=charts` does.
//
// In one test the cluster has kube-apiserver, controllers and scheduler, and a node that is simulated by kwok: pods are ready because it says so.
// That shows that Kubernetes takes all that the chart makes, in the order in which Helm gives it.
//
// In the other the node is the one of this package (node_test.go), which runs the pods bound to it as Docker containers from the images of
// `make images`: with their users, security contexts, environment, files, volumes and probes, ends them as a kubelet would, and leads
// connections to Services to pods that are ready. What it does not do: network policies, resource requests, images from a registry.
package e2e
