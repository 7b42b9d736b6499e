// Package standby loses the Postgres server of an installation under load and promotes its synchronous standby, several times back and forth:
// `make e2e SUITE=standby`. It counts what is lost, and measures how long the services take to follow.
package standby
