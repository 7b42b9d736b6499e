package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/kyma-project/keb/libs/tlsfiles"
)

// Defaults of Config.
const (
	defaultMaxOpen        = 8
	defaultConnectTimeout = 5 * time.Second
	pingInterval          = 100 * time.Millisecond
)

// Config says which database to open and how.
type Config struct {
	// URL is "postgres://user:password@host:port/database?...". Without sslmode, a loopback address or a socket
	// folder is reached in the clear ("disable"), and any other host with TLS and a certificate of its own name ("verify-full"). Required.
	URL string
	// TLS are the files for TLS, in place of sslrootcert, sslcert and sslkey in the URL; with any of them nothing but
	// "verify-full" will do. They are read again for each session. Errors name the variables KEB_DATABASE_CA_FILE and so on.
	TLS tlsfiles.Client
	// MaxOpen bounds the connections of the pool; zero means 8.
	MaxOpen int
	// MaxIdle bounds the idle connections kept; zero means MaxOpen, so that a busy pool does not reconnect.
	MaxIdle int
	// ApplicationName is shown in pg_stat_activity. Empty keeps what the URL says.
	ApplicationName string
	// StatementTimeout is the server's limit for one statement; zero means none.
	StatementTimeout time.Duration
	// ByIndex keeps the server from reading a whole table where there is an index: for statements that all have one, and are planned
	// before tables that grow have been analysed.
	ByIndex bool
}

// Open returns a pool whose server has answered. A server that cannot be reached yet, or that is still starting, is
// tried again until ctx ends; what repetition cannot cure (a wrong password, a missing database, a bad URL) is
// returned at once. No error contains the password. A call on the pool returns within a second after its context has ended,
// also when the server has fallen silent.
func Open(ctx context.Context, cfg Config) (*sqlx.DB, error) {
	dsn, err := cfg.dsn()
	if err != nil {
		return nil, err
	}
	if err := register(cfg.TLS); err != nil {
		return nil, fmt.Errorf("open postgres: %w", err)
	}
	driverConnector, err := pq.NewConnector(dsn)
	if err != nil {
		// The driver's parse errors may quote the connection string.
		return nil, errors.New("open postgres: the database URL is not understood by the driver")
	}
	db := sqlx.NewDb(sql.OpenDB(connector{driverConnector, cfg.TLS}), "postgres")
	maxOpen := cfg.MaxOpen
	if maxOpen == 0 {
		maxOpen = defaultMaxOpen
	}
	maxIdle := cfg.MaxIdle
	if maxIdle == 0 {
		maxIdle = maxOpen
	}
	db.SetMaxOpenConns(maxOpen)
	db.SetMaxIdleConns(maxIdle)
	if err := awaitServer(ctx, db); err != nil {
		return nil, errors.Join(fmt.Errorf("open postgres at %s: %w", address(cfg.URL), err), db.Close())
	}
	return db, nil
}

func awaitServer(ctx context.Context, db *sqlx.DB) error {
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	var last error
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return nil
		}
		// When ctx ends the ping only says that time is up; the failure before it says why.
		if last == nil || !isTimeout(err) {
			last = err
		}
		if ctx.Err() == nil && (tlsfiles.IsTLS(err) || !passes(err) && !isTimeout(err)) {
			return err
		}
		select {
		case <-ctx.Done():
			return last
		case <-tick.C:
		}
	}
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool } // net errors and context.DeadlineExceeded
	return errors.Is(err, context.Canceled) || (errors.As(err, &timeout) && timeout.Timeout())
}

// dsn completes the URL with what the rest of the code relies on.
func (c Config) dsn() (string, error) {
	if c.URL == "" {
		return "", errors.New("open postgres: the database URL is empty; want postgres://user:password@host:port/database")
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		// url.Parse quotes its input, password included.
		return "", errors.New("open postgres: the database URL cannot be parsed; want postgres://user:password@host:port/database")
	}
	if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return "", fmt.Errorf("open postgres: the database URL has scheme %q; want postgres", u.Scheme)
	}
	q := u.Query()
	setDefault := func(key, value string) {
		if !q.Has(key) {
			q.Set(key, value)
		}
	}
	// Saves a round trip per statement with parameters (docs/contracts/nats.md#postgres), and bytes arrive as they are sent.
	if v := q.Get("binary_parameters"); v != "" && v != "yes" {
		return "", fmt.Errorf("open postgres: the database URL has binary_parameters=%s; leave it out, only yes works", v)
	}
	setDefault("binary_parameters", "yes")
	setDefault("connect_timeout", strconv.Itoa(int(defaultConnectTimeout/time.Second)))
	if err := c.checkFiles(q); err != nil {
		return "", err
	}
	setDefault("sslmode", defaultSSLMode(u))
	if c.TLS.Enabled() {
		q.Set("sslmode", driverMode(c.TLS))
	}
	if c.ApplicationName != "" {
		q.Set("application_name", c.ApplicationName)
	}
	if c.StatementTimeout > 0 {
		q.Set("statement_timeout", strconv.FormatInt(max(1, c.StatementTimeout.Milliseconds()), 10))
	}
	if c.ByIndex {
		q.Set("enable_seqscan", "off")
		// What has no index after all costs so much on paper then that the server would compile it first.
		q.Set("jit", "off")
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

func defaultSSLMode(u *url.URL) string {
	host := u.Hostname()
	if h := u.Query().Get("host"); h != "" {
		host = h
	}
	ip := net.ParseIP(host)
	if host == "" || host == "localhost" || strings.HasPrefix(host, "/") || (ip != nil && ip.IsLoopback()) {
		return "disable"
	}
	return verifyFull
}

// address is the part of a database URL that is fit for an error.
func address(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "(unreadable URL)"
	}
	host := u.Host
	if h := u.Query().Get("host"); h != "" {
		host = h
	}
	return host + u.Path
}

// Close closes a pool. That its server has gone before is no error: there is nothing left to close.
func Close(db *sqlx.DB) error {
	err := db.Close()
	if IsConnection(err) {
		return nil
	}
	return err
}
