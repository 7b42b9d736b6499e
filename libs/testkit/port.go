package testkit

import (
	"net"
	"strconv"
	"testing"
)

// Addr returns "127.0.0.1:port" with a port of Port.
func Addr(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(Port(t)))
}
