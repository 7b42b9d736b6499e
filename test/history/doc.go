// Package history lets 50 clients change 25 instances in an installation with faults, records every invocation, and checks the history with
// test/internal/history: `make e2e SUITE=history`.
package history
