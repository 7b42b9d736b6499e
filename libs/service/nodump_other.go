//go:build !linux

package service

// NoDumps does nothing on this operating system.
func NoDumps() error { return nil }
