//go:build !linux

package testkit

import "syscall"

// endWithTests ends no child: a killed test binary leaves it.
func endWithTests() *syscall.SysProcAttr { return nil }
