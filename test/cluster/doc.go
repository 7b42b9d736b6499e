// Package cluster breaks a NATS cluster of three servers under load and counts what is lost: `make e2e SUITE=cluster`.
//
// Each server has its own file system (test/internal/lossyfs), and reaches the others through proxies. A probe publishes numbered messages
// through every server, so that the suite can count what the bus acknowledges and then loses. KEB must not lose anything.
package cluster
