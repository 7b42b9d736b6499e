// Package pglocal runs the machine's own PostgreSQL binaries as a child process, for tests and for the all-in-one
// "keb up". The server listens on loopback only, asks for a password that is made when the data folder is, and does not
// outlive its parent: on Linux the kernel stops it, elsewhere the next Start does.
package pglocal
