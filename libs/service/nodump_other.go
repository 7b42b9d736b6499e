//go:build !linux

package service

// NoDumps does nothing: what keeps memory out of core dumps on Linux does not exist here.
func NoDumps() error { return nil }
