package kubetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
)

// The ports of FreeAddress are below those that systems assign to connections, and below those of other tests.
const (
	firstPort = 10000
	ports     = 10000
)

var (
	// Concurrent test binaries start at different ports.
	startPort = rand.Int64N(ports)
	nextPort  atomic.Int64
)

// FreeAddress returns an unused loopback address. It returns each address only once, so that the address is still free when a process
// listens on it later.
func FreeAddress() (string, error) {
	for range ports {
		address := fmt.Sprintf("127.0.0.1:%d", firstPort+(startPort+nextPort.Add(1))%ports)
		ln, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		if err := ln.Close(); err != nil {
			return "", fmt.Errorf("find a free port: %w", err)
		}
		return address, nil
	}
	return "", errors.New("find a free port: there is none")
}
