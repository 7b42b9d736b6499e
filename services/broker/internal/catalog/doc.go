// Package catalog defines the service "kymaruntime" and its plans: identifiers, JSON
// schemas, defaults, providers and regions (docs/contracts/plans.md). It resolves the
// parameters of an order to the parameters of a runtime.
//
// A Catalog is built and validated at start, and is read-only after that.
package catalog
