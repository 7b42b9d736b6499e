// Package harness runs the built keb as a user would: as a process with its own
// data folder and ports, that can be killed and started again. Tests see it
// through its command line and its three APIs only.
package harness
