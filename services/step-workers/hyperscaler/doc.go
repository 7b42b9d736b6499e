// Package hyperscaler is the worker of the hyperscaler account pool. It assigns an account of its provider to an instance, and marks an
// unused account for cleaning (docs/contracts/gardener.md).
package hyperscaler
