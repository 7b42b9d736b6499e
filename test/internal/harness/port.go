package harness

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ports are taken from below the range that the system gives to clients: between a kill and the next start a connection
// of somebody else might get one of those.
const (
	firstPort = 20000
	ports     = 12000
)

var nextPort atomic.Int64

// freeAddr is a loopback address that nobody listens on. Until the test ends no other test binary gets it, also while the program
// that is to listen there is not started yet, or is killed: the UDP port of the same number, which nobody uses, stands for it.
func freeAddr(t testing.TB) string {
	t.Helper()
	for range ports {
		// Test binaries that run at the same time start at different places.
		port := firstPort + (os.Getpid()*97+int(nextPort.Add(1)))%ports
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		taken, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			_ = taken.Close()
			continue
		}
		t.Cleanup(func() { _ = taken.Close() })
		require.NoError(t, ln.Close())
		return addr
	}
	t.Fatal("no free port")
	return ""
}

// FreeAddr is a loopback address that nobody listens on, for a program that a test starts beside keb.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return freeAddr(t)
}
