//go:build !linux

package service

// dumpable is unknown on this operating system.
func dumpable() int { return 0 }
