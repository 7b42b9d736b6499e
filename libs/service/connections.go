package service

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// connections are those of a server. It bounds their number, and knows which have not sent a request yet: a server that shuts down
// would not answer their first one any more, and yet waits five seconds for it.
type connections struct {
	most int

	mu    sync.Mutex
	conns map[net.Conn]*connection
	// waiting are the connections without a request whose header is complete, the one that waits longest first.
	waiting  *list.List
	shutting bool
}

type connection struct {
	conn net.Conn
	// place is that among the waiting; nil while requests are answered.
	place *list.Element
	// answering counts the requests that a handler works on; HTTP/2 may have several.
	answering int
	// used tells that something has been received.
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
		return // it was cut
	}
	switch state {
	case http.StateClosed, http.StateHijacked:
		s.remove(c)
	default:
		c.used = true
		if c.place != nil { // it has begun to send a request, or received the last of an answer
			s.waiting.MoveToBack(c.place)
		}
	}
}

// add takes a connection in. If there are too many, the one that waits longest goes, which may be itself.
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

// withConn lets the handler know on which connection a request came.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// handler keeps connections whose requests are being answered.
func (s *connections) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, ok := r.Context().Value(connKey{}).(net.Conn); ok {
			s.answer(conn, 1)
			defer s.answer(conn, -1)
		}
		next.ServeHTTP(w, r)
	})
}

// answer counts the requests that are being answered.
func (s *connections) answer(conn net.Conn, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.conns[conn]
	if c == nil {
		return // it was cut
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

// close is called when the server has begun to shut down.
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

// cut closes a connection at once: the farewell of TLS could take seconds.
func cut(conn net.Conn) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	_ = conn.Close()
}
