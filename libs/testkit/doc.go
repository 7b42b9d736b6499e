// Package testkit provides real dependencies for tests: a separate PostgreSQL database, a NATS server in the test's process, a TCP proxy
// that delays and cuts connections, a clock, and waiting for conditions. Only tests may import it.
package testkit
