// Package upgrade rolls an installation under load from the last release to this tree and back, service by service and in several orders:
// `make e2e SUITE=upgrade`. It counts what is lost, and checks that each operation keeps its definition.
package upgrade
