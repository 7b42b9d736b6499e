// Package kyma is the worker that collects the overrides which operators keep in Secrets and ConfigMaps of the control
// plane (facts/keb.md 4.1).
package kyma
