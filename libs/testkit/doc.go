// Package testkit provides real dependencies for tests: a NATS server, a TCP proxy that delays and cuts connections, certificates, a
// clock, and waiting for conditions. Only tests may import it. The package libs/postgres/pgtest has databases.
package testkit
