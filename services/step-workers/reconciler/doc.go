// Package reconciler is the worker of the Reconciler: it tells it what Kyma a runtime shall have, waits until the runtime
// has it, and takes the runtime away from it again (docs/contracts/reconciler.md).
package reconciler
