//go:build !linux

package service

// dumpable is not known here.
func dumpable() int { return 0 }
