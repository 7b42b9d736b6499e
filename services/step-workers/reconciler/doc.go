// Package reconciler is the worker of the Reconciler: it tells it what Kyma a runtime shall have, waits until the runtime
// has it, and takes the runtime away from it again (facts/keb.md 4.1, 4.2, 5.6).
package reconciler
