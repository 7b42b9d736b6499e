// Package kyma is the worker that decides which version of Kyma an operation installs, and collects the overrides for it which
// operators keep in Secrets and ConfigMaps of the control plane (docs/contracts/kyma-configuration.md).
package kyma
