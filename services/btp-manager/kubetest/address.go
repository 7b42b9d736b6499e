package kubetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
)

// The ports of FreeAddress are below those that systems give to connections, and below those of other tests.
const (
	firstPort = 10000
	ports     = 10000
)

var (
	// Test binaries that run at the same time start at different places.
	startPort = rand.Int64N(ports)
	nextPort  atomic.Int64
)

// FreeAddress answers a loopback address that nobody listens on. It answers none a second time, so that it is still free when a
// process that was told of it listens there.
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
