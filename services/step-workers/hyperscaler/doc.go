// Package hyperscaler is the worker of the hyperscaler account pool: it gives an instance an account of its provider,
// and marks the account for cleaning when nothing uses it any more (docs/contracts/gardener.md).
package hyperscaler
