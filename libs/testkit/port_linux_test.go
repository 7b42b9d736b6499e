package testkit

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPort_NoListener_StaysReserved(t *testing.T) {
	t.Parallel()
	address := Addr(t)
	for range 2 {
		ln, err := net.Listen("tcp", address)
		require.NoError(t, err)
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Error(err)
		} else {
			_ = conn.Close()
		}
		if other, err := net.Listen("tcp", address); err == nil {
			_ = other.Close()
			t.Error("two listen there")
		}
		require.NoError(t, ln.Close())
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			t.Error("a closed listener still listens")
		}
	}
	// Listeners without a specific port get other ports.
	var all []net.Listener
	defer func() {
		for _, ln := range all {
			_ = ln.Close()
		}
	}()
	for range 500 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		all = append(all, ln)
		if ln.Addr().String() == address {
			t.Fatal("the port was assigned to another listener")
		}
	}
}
