// Package pglocal runs the machine's own PostgreSQL binaries, or downloaded ones, as a child process, for tests and for the all-in-one
// "keb up". The server listens only on loopback, and requires a password that is generated with the data folder. It ends with its
// parent: on Linux the kernel stops it, on other systems the next Start does.
package pglocal
