package service

import (
	"fmt"
	"syscall"
)

// NoDumps prevents core dumps of the process, which would contain keys and passwords, and access to its memory and
// environment by other processes of the same user. It is for main functions.
func NoDumps() error {
	// The limit is for child programs: the kernel resets the flag below at each exec, but not the limit.
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return fmt.Errorf("allow no core dumps: %w", err)
	}
	// The limit does not apply if core_pattern is a program, such as systemd-coredump. The flag does.
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_DUMPABLE, 0, 0); errno != 0 {
		return fmt.Errorf("allow no core dumps: prctl: %w", errno)
	}
	return nil
}
