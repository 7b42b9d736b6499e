package testkit

import (
	"os"
	"syscall"
	"testing"
)

// Port reserves a port of 127.0.0.1 until the test ends, whether a server listens on it or not. It is for a server that restarts, or whose
// port cannot be queried.
func Port(t testing.TB) int {
	t.Helper()
	// A bound socket that does not listen reserves the port: the kernel does not assign it to other processes. A server can still listen on
	// this port, because package net allows the reuse of addresses.
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("keep a port: %v", os.NewSyscallError("socket", err))
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatalf("keep a port: %v", os.NewSyscallError("setsockopt", err))
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatalf("keep a port: %v", os.NewSyscallError("bind", err))
	}
	address, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatalf("keep a port: %v", os.NewSyscallError("getsockname", err))
	}
	return address.(*syscall.SockaddrInet4).Port
}
