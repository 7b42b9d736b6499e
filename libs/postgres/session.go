package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lib/pq"

	"github.com/kyma-project/keb/libs/tlsfiles"
)

// grace is the time after the end of a statement's context in which the session must report that the server has cancelled the statement.
// After that, the session is closed.
const grace = 500 * time.Millisecond

// connector creates sessions that a server without an answer cannot block beyond the context of a call. The driver reads an answer without
// a deadline. When the context ends, it only sends a cancel request to the server, on a separate connection. That request triggers the
// limit of the session, so a statement that ends normally has no additional cost.
type connector struct {
	pq    *pq.Connector
	files tlsfiles.Client
}

// Driver returns the driver of the sessions.
func (c connector) Driver() driver.Driver { return c.pq.Driver() }

// Connect opens a session. Unlike the driver's Connect, it returns when ctx ends.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	s, err := c.connect(ctx)
	if err != nil {
		return nil, &sessionError{cause: err}
	}
	return s, nil
}

func (c connector) connect(ctx context.Context) (driver.Conn, error) {
	if err := register(c.files); err != nil {
		return nil, err
	}
	line := &line{}
	perSession := *c.pq
	perSession.Dialer(line)
	stop := context.AfterFunc(ctx, line.hangUp)
	made, err := perSession.Connect(ctx)
	if !stop() {
		if err == nil {
			err = made.Close()
		}
		return nil, errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return nil, explain(c.files, err)
	}
	s, ok := made.(session)
	if !ok {
		return nil, errors.Join(fmt.Errorf("open postgres session: the driver's connection %T lacks a method", made), made.Close())
	}
	line.established.Store(true)
	return &limitedSession{session: s, line: line}, nil
}

// session lists the methods of the driver's connection that database/sql uses.
type session interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	driver.NamedValueChecker
}

type limitedSession struct {
	session
	line *line
}

// BeginTx observes the context, which the driver does not do for this call.
func (s *limitedSession) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	stop := context.AfterFunc(ctx, s.line.limit)
	defer stop()
	return s.session.BeginTx(ctx, opts)
}

// IsValid returns false for a limited session, so that it does not return to the pool.
func (s *limitedSession) IsValid() bool { return !s.line.limited.Load() && s.session.IsValid() }

// ResetSession returns an error for a limited session, so that it is not reused without returning to the pool.
func (s *limitedSession) ResetSession(ctx context.Context) error {
	if s.line.limited.Load() {
		return driver.ErrBadConn
	}
	return s.session.ResetSession(ctx)
}

// line is the dialer and the network connection of one session.
type line struct {
	established, limited atomic.Bool

	mu     sync.Mutex
	conn   net.Conn
	hungUp bool
}

// hangUp closes the connection of a session that is being opened.
func (l *line) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hungUp = true
	if l.conn != nil {
		_ = l.conn.Close()
	}
}

// limit sets the final deadline of the session.
func (l *line) limit() {
	l.limited.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.conn.SetDeadline(time.Now().Add(grace))
}

// DialContext first connects the session; later calls are for the driver's cancel requests.
func (l *line) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if l.established.Load() {
		l.limit()
		return dialBriefly(ctx, network, address)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hungUp {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	l.conn = conn
	return conn, nil
}

// Dial and DialTimeout complete the driver's interface. The driver prefers DialContext.
func (l *line) Dial(network, address string) (net.Conn, error) {
	return l.DialContext(context.Background(), network, address)
}

// DialTimeout is Dial with a timeout.
func (l *line) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return l.DialContext(ctx, network, address)
}

// dialBriefly connects for a cancel request with a short timeout, because the caller of a prepared statement waits for it.
func dialBriefly(ctx context.Context, network, address string) (net.Conn, error) {
	deadline := time.Now().Add(grace)
	d := net.Dialer{Deadline: deadline}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return briefConn{conn}, nil
}

// briefConn keeps its original deadline.
type briefConn struct{ net.Conn }

// SetDeadline does nothing.
func (briefConn) SetDeadline(time.Time) error { return nil }
