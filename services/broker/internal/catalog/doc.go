// Package catalog holds what can be ordered: the service "kymaruntime" and its
// plans with their identifiers, JSON schemas, defaults, providers and regions
// (facts/keb.md section 2), and turns the parameters of an order into those a
// runtime is built from.
//
// A Catalog is built and checked once, at start, and is read-only after that.
package catalog
