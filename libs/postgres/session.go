package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// grace is the time limit of a cancel request.
const grace = 500 * time.Millisecond

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
	// timeline is the server's when the session was opened; it grows with each promotion. Zero if it is unknown.
	timeline int64
	// closed is called once the connection is closed, and lost if it ends otherwise.
	closed, lost func()

	mu     sync.Mutex
	conn   *conn
	hungUp bool
}

// hangUp closes the connection: of a session that is being opened, or on an old primary.
func (l *line) hangUp() {
	l.mu.Lock()
	l.hungUp = true
	open := l.conn
	l.mu.Unlock()
	if open != nil {
		_ = open.Close()
	}
}

// limit ends the session: it reads nothing more. A commit that waits for a synchronous standby when a cancel request arrives is reported as
// successful by the server, although the standby lacks it. That answer must never be read, so limit precedes the cancel request.
func (l *line) limit() {
	l.limited.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.conn.SetDeadline(time.Now())
}

// waits returns how long the session has waited for an answer.
func (l *line) waits() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return 0
	}
	since := l.conn.asked.Load()
	if since == 0 {
		return 0
	}
	return time.Duration(time.Now().UnixNano() - since)
}

// conn records since when the server owes an answer.
type conn struct {
	net.Conn
	asked        atomic.Int64 // in nanoseconds since 1970; zero if nothing is owed
	closed, lost func()
}

func (c *conn) Write(p []byte) (int, error) {
	c.asked.CompareAndSwap(0, time.Now().UnixNano())
	n, err := c.Conn.Write(p)
	c.check(err)
	return n, err
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.asked.Store(0)
	}
	c.check(err)
	return n, err
}

func (c *conn) check(err error) {
	if err != nil && !errors.Is(err, net.ErrClosed) {
		c.lost()
	}
}

func (c *conn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// DialContext first connects the session; later calls are for the driver's cancel requests.
func (l *line) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if l.established.Load() {
		l.limit()
		return dialBriefly(ctx, network, address)
	}
	var d net.Dialer
	raw, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hungUp {
		return nil, errors.Join(net.ErrClosed, raw.Close())
	}
	l.conn = &conn{Conn: raw, closed: l.closed, lost: l.lost}
	return l.conn, nil
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
