//go:build !linux

package testkit

import (
	"net"
	"testing"
)

// Port returns a currently free port of 127.0.0.1.
func Port(t testing.TB) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("look for a port: %v", err)
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().(*net.TCPAddr).Port
}
