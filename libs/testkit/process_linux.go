package testkit

import "syscall"

// endWithTests makes the kernel end a child with the test binary, and keeps the terminal's Ctrl-C from it.
func endWithTests() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
