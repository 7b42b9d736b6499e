// Package power cuts the power of Postgres, of NATS and of the whole machine under load, and counts what is lost: `make e2e SUITE=power`.
//
// The data folders of Postgres and NATS are on a file system that loses what was not synced (test/internal/lossyfs). A cut stops that file
// system, kills the processes and lets the file system forget; then all processes start again, and must recover without help. The simulated
// external systems keep running: they know what was ordered and created.
package power
