package service

import (
	"net"
	"net/http"
	"sync"
)

// unused knows the connections of a server that have not sent a request yet. A server that shuts down would not answer their
// first one any more, and yet waits five seconds for it.
type unused struct {
	mu       sync.Mutex
	conns    map[net.Conn]struct{}
	shutting bool
}

func newUnused() *unused { return &unused{conns: map[net.Conn]struct{}{}} }

// watch is the ConnState hook of the server.
func (u *unused) watch(c net.Conn, state http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(u.conns, c)
	case u.shutting: // accepted just before the listener was closed
		_ = c.Close()
	default:
		u.conns[c] = struct{}{}
	}
}

// close is called when the server has begun to shut down.
func (u *unused) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.shutting = true
	for c := range u.conns {
		_ = c.Close()
	}
}
