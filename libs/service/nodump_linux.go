package service

import (
	"fmt"
	"syscall"
)

// NoDumps keeps the memory of the process, and with it keys and passwords, out of core dumps, whatever ends it, and its memory and
// environment from other processes of the same user. It is for main functions, and for the programs that they start.
func NoDumps() error {
	// For what those programs dump: the kernel resets the flag below with each exec, and not the limit.
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return fmt.Errorf("allow no core dumps: %w", err)
	}
	// The limit does not bind a core_pattern that is a program, such as systemd-coredump. This does.
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_DUMPABLE, 0, 0); errno != 0 {
		return fmt.Errorf("allow no core dumps: prctl: %w", errno)
	}
	return nil
}
