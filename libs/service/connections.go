package service

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// connections tracks the connections of a server. It limits their number, and closes those without a request at shutdown: the server
// would not answer their first request, but would wait five seconds for it.
type connections struct {
	most int

	mu    sync.Mutex
	conns map[net.Conn]*connection
	// waiting lists the connections without a complete request header, the longest waiting first.
	waiting  *list.List
	shutting bool
}

type connection struct {
	conn net.Conn
	// place is the position in waiting; nil while requests are answered.
	place *list.Element
	// answering counts the requests in handlers; HTTP/2 may have several.
	answering int
	// used reports whether data was received.
	used bool
}

func newConnections(most int) *connections {
	return &connections{most: most, conns: map[net.Conn]*connection{}, waiting: list.New()}
}

// watch is the ConnState hook of the server.
func (s *connections) watch(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state == http.StateNew {
		if s.shutting { // accepted just before the listener was closed
			cut(conn)
			return
		}
		s.add(conn)
		return
	}
	c := s.conns[conn]
	if c == nil {
		return // the connection was closed
	}
	switch state {
	case http.StateClosed, http.StateHijacked:
		s.remove(c)
	case http.StateActive:
		c.used = true
		if c.place != nil { // it has begun to send a request
			s.waiting.MoveToBack(c.place)
		}
	default: // it became idle when its last handler returned
	}
}

// add adds a connection. If there are too many, it closes the longest waiting one, which may be the new one.
func (s *connections) add(conn net.Conn) {
	c := &connection{conn: conn}
	s.conns[conn] = c
	c.place = s.waiting.PushBack(c)
	if len(s.conns) > s.most {
		longest := s.waiting.Front().Value.(*connection)
		s.remove(longest)
		cut(longest.conn)
	}
}

func (s *connections) remove(c *connection) {
	delete(s.conns, c.conn)
	if c.place != nil {
		s.waiting.Remove(c.place)
		c.place = nil
	}
}

type connKey struct{}

// withConn adds the connection of a request to its context.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// handler marks connections as answering while next runs.
func (s *connections) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, ok := r.Context().Value(connKey{}).(net.Conn); ok {
			s.answer(conn, 1)
			defer s.answer(conn, -1)
		}
		next.ServeHTTP(w, r)
	})
}

// answer counts the requests in handlers.
func (s *connections) answer(conn net.Conn, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.conns[conn]
	if c == nil {
		return // the connection was closed
	}
	c.answering += n
	switch {
	case c.answering == 0:
		c.place = s.waiting.PushBack(c)
	case c.place != nil:
		s.waiting.Remove(c.place)
		c.place = nil
	}
}

// close closes the waiting connections at shutdown.
func (s *connections) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shutting = true
	for conn, c := range s.conns {
		if !c.used {
			s.remove(c)
			cut(conn)
		}
	}
}

// cut closes a connection without the TLS shutdown, which could take seconds.
func cut(conn net.Conn) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	_ = conn.Close()
}
