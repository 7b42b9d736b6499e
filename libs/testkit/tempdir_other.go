//go:build !linux

package testkit

// memoryDir returns "", because this system has no folder in memory.
func memoryDir(uint64) string { return "" }
