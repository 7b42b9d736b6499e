// Package reconciler is the worker of the Reconciler. It sends the Kyma configuration of a runtime, waits for its installation, and
// deregisters the runtime (docs/contracts/reconciler.md).
package reconciler
