package testkit

import (
	"os"
	"syscall"
	"testing"
)

// Port returns a port of 127.0.0.1 that nobody else is given until the test ends, whether somebody listens there or not. It is for a
// server that is stopped and started again, or of which nobody hears where it listens.
func Port(t testing.TB) int {
	t.Helper()
	// A socket that is bound and does not listen keeps the port: the kernel chooses another one for whoever asks for any, and those who
	// ask for this one may listen there, as package net lets them use addresses again.
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
