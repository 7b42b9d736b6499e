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

// grace is how long a session may take, once the context of its statement has ended, to report that the server has
// cancelled the statement. A session that stays silent is given up then.
const grace = 500 * time.Millisecond

// connector makes sessions that a silent server cannot hold beyond the context of a call. The driver reads an answer
// without a deadline; all it does when the context ends is to ask the server, on a connection of its own, to cancel.
// That request is the sign to limit the session, so a statement that ends by itself costs nothing more.
type connector struct {
	pq    *pq.Connector
	files tlsfiles.Client
}

// Driver is the driver of the sessions.
func (c connector) Driver() driver.Driver { return c.pq.Driver() }

// Connect makes a session. Unlike the driver's own Connect it returns when ctx ends.
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

// session is what database/sql can use of the driver's connection.
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

// BeginTx is the one call that the driver does not watch the context of.
func (s *limitedSession) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	stop := context.AfterFunc(ctx, s.line.limit)
	defer stop()
	return s.session.BeginTx(ctx, opts)
}

// IsValid keeps a limited session out of the pool.
func (s *limitedSession) IsValid() bool { return !s.line.limited.Load() && s.session.IsValid() }

// ResetSession keeps a limited session from being used again without having been in the pool.
func (s *limitedSession) ResetSession(ctx context.Context) error {
	if s.line.limited.Load() {
		return driver.ErrBadConn
	}
	return s.session.ResetSession(ctx)
}

// line is the dialer of one session and holds its network connection.
type line struct {
	established, limited atomic.Bool

	mu     sync.Mutex
	conn   net.Conn
	hungUp bool
}

// hangUp breaks the connection of a session that is being made.
func (l *line) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hungUp = true
	if l.conn != nil {
		_ = l.conn.Close()
	}
}

// limit gives the session a last moment.
func (l *line) limit() {
	l.limited.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.conn.SetDeadline(time.Now().Add(grace))
}

// DialContext connects the session first, and after that the driver's requests to cancel one of its statements.
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

// Dial and DialTimeout complete the driver's interface; it prefers DialContext.
func (l *line) Dial(network, address string) (net.Conn, error) {
	return l.DialContext(context.Background(), network, address)
}

// DialTimeout is Dial with a limit.
func (l *line) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return l.DialContext(ctx, network, address)
}

// dialBriefly connects for as long as a request to cancel is of use: a caller with a prepared statement waits for it.
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

// briefConn keeps the deadline that it was made with.
type briefConn struct{ net.Conn }

// SetDeadline does nothing.
func (briefConn) SetDeadline(time.Time) error { return nil }
