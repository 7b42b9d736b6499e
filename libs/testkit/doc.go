// Package testkit gives tests the real things: a PostgreSQL database of their own, a real NATS server in process, a TCP proxy
// that delays and cuts, a clock they move, and waiting on conditions. It is for tests only.
package testkit
