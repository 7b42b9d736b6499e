// Package chaos injects faults into an installation under load, and prints the results: `make chaos`. `make soak SUITE=power`, `faults` and
// `growth` do so for hours.
//
// The data folders of Postgres and NATS are on a file system (test/internal/lossyfs) that can be full, and that loses what was not synced when
// its power is cut.
package chaos
