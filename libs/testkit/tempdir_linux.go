package testkit

import (
	"bufio"
	"fmt"
	"os"
	"syscall"
)

const (
	sharedMemory = "/dev/shm"
	tmpfsMagic   = 0x01021994
)

// memoryDir returns a folder in memory, or "" unless so many bytes are free.
func memoryDir(free uint64) string {
	var s syscall.Statfs_t
	if err := syscall.Statfs(sharedMemory, &s); err != nil || s.Type != tmpfsMagic || s.Bavail*uint64(s.Bsize) < free || availableMemory() < free {
		return ""
	}
	return sharedMemory
}

// availableMemory returns the bytes that programs can use without swapping; 0 if that is unknown.
func availableMemory() uint64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var kilobytes uint64
		if _, err := fmt.Sscanf(lines.Text(), "MemAvailable: %d kB", &kilobytes); err == nil {
			return kilobytes << 10
		}
	}
	return 0
}
