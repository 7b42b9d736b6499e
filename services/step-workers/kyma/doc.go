// Package kyma is the worker that selects the version of Kyma for an operation. It also collects the overrides for that version from the
// operators' Secrets and ConfigMaps in the control plane (docs/contracts/kyma-configuration.md).
package kyma
