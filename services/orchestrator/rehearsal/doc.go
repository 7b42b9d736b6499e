// Package rehearsal runs process definitions without a bus, a database and
// workers, on a clock that jumps to the next due time. The engine, the
// conditions and the budgets are the real ones, so an overlay can be tested in
// milliseconds: which steps run, in which order, and what becomes of the
// operation when a step fails, hangs, or has no worker.
//
// Run plays one operation with scripted answers. Player is the part below
// it, for tests that execute real steps.
package rehearsal
