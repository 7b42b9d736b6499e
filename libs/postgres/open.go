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

// Config describes the database and the connections.
type Config struct {
	// URL is "postgres://user:password@host:port/database?...". Without sslmode, connections to a loopback address or a socket folder are
	// unencrypted ("disable"), and those to any other host use TLS and verify the certificate's name ("verify-full"). Required.
	//
	// It may list a primary and its standbys, "host1:port1,host2:port2": sessions are opened on the one that accepts writes
	// (target_session_attrs=read-write). With several hosts, or with target_session_attrs, the sessions follow a promoted standby: as soon
	// as one is found, those on the old primary are closed, also if it is silent or still accepts writes.
	URL string
	// TLS holds the files for TLS, which replace sslrootcert, sslcert and sslkey in the URL. With any of them, the only valid sslmode is
	// "verify-full". The files are read for each session. Errors contain the names of the variables, for example KEB_DATABASE_CA_FILE.
	TLS tlsfiles.Client
	// MaxOpen is the maximum number of connections of the pool, which may all be idle; zero means 8.
	MaxOpen int
	// ApplicationName is displayed in pg_stat_activity. Empty keeps the name in the URL.
	ApplicationName string
	// StatementTimeout is the server's limit for one statement; zero means none.
	StatementTimeout time.Duration
	// IdleInTransaction is the server's limit for the time in which a transaction waits for the next statement of its client; zero means none.
	// After that the server ends the session, so that a frozen client keeps no locks.
	IdleInTransaction time.Duration
	// ByIndex makes the server prefer an index to a sequential scan, and plan a prepared statement once instead of at each execution. It is
	// for statements that all have an index, whatever their arguments are, and that are planned before growing tables are analyzed.
	ByIndex bool
}

// Open returns a pool after the server has answered. It retries until ctx ends while the server is unreachable or starting, and returns
// errors that a retry cannot resolve (a wrong password, a missing database, an invalid URL) immediately. No error contains the
// password. A call on the pool returns within a second after its context has ended, even if the server does not answer.
func Open(ctx context.Context, cfg Config) (*sqlx.DB, error) {
	dsn, standby, err := cfg.dsn()
	if err != nil {
		return nil, fmt.Errorf("open postgres: %w", err)
	}
	if err := register(cfg.TLS); err != nil {
		return nil, fmt.Errorf("open postgres: %w", err)
	}
	driverConfig, err := pq.NewConfig(dsn)
	if err != nil {
		// The driver's parse errors can contain the connection string.
		return nil, errors.New("open postgres: the database URL is not understood by the driver")
	}
	db := sqlx.NewDb(sql.OpenDB(newConnector(ctx, driverConfig, cfg.TLS, standby)), "postgres")
	maxOpen := cfg.MaxOpen
	if maxOpen == 0 {
		maxOpen = defaultMaxOpen
	}
	db.SetMaxOpenConns(maxOpen)
	db.SetMaxIdleConns(maxOpen) // a busy pool does not reconnect
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
		// If ctx ends, the ping returns only a timeout; the previous error contains the reason.
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
	var timeout interface{ Timeout() bool } // implemented by net errors and context.DeadlineExceeded
	return errors.Is(err, context.Canceled) || (errors.As(err, &timeout) && timeout.Timeout())
}

// dsn adds the parameters that the rest of the code relies on to the URL. It reports whether the URL describes a server with a standby.
func (c Config) dsn() (_ string, standby bool, _ error) {
	if c.URL == "" {
		return "", false, errors.New("the database URL is empty; " + wantURL)
	}
	u, err := parseURL(c.URL)
	if err != nil {
		return "", false, err
	}
	if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return "", false, fmt.Errorf("the database URL has scheme %q; want postgres", u.Scheme)
	}
	q := u.Query()
	setDefault := func(key, value string) {
		if !q.Has(key) {
			q.Set(key, value)
		}
	}
	// This saves a round trip per statement with parameters (docs/contracts/nats.md#postgres), and bytes arrive unchanged.
	if v := q.Get("binary_parameters"); v != "" && v != "yes" {
		return "", false, fmt.Errorf("the database URL has binary_parameters=%s; leave it out, only yes works", v)
	}
	setDefault("binary_parameters", "yes")
	setDefault("connect_timeout", strconv.Itoa(int(defaultConnectTimeout/time.Second)))
	if err := c.checkFiles(q); err != nil {
		return "", false, err
	}
	if standby, err = setSessionAttrs(u, q); err != nil {
		return "", false, err
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
	if c.IdleInTransaction > 0 {
		q.Set("idle_in_transaction_session_timeout", strconv.FormatInt(max(1, c.IdleInTransaction.Milliseconds()), 10))
	}
	if c.ByIndex {
		q.Set("enable_seqscan", "off")
		q.Set("plan_cache_mode", "force_generic_plan")
		// Without sequential scans, a statement without an index has such a high estimated cost that the server would compile it.
		q.Set("jit", "off")
	}
	u.RawQuery = q.Encode()
	return u.String(), standby, nil
}

func defaultSSLMode(u *url.URL) string {
	for _, host := range hostNames(u) {
		ip := net.ParseIP(host)
		if host != "" && host != "localhost" && !strings.HasPrefix(host, "/") && (ip == nil || !ip.IsLoopback()) {
			return verifyFull
		}
	}
	return "disable"
}

// address returns the part of a database URL that an error may contain.
func address(rawURL string) string {
	u, err := parseURL(rawURL)
	if err != nil {
		return "(unreadable URL)"
	}
	query := u.Query()
	host := u.Host
	if h := query.Get("host"); h != "" {
		host = h
	}
	if hosts, ports := strings.Split(host, ","), strings.Split(query.Get("port"), ","); len(hosts) == len(ports) && ports[0] != "" {
		for i := range hosts {
			hosts[i] = net.JoinHostPort(hosts[i], ports[i])
		}
		host = strings.Join(hosts, ",")
	}
	return host + u.Path
}

// Close closes a pool. A lost connection to the server is not an error: nothing is left to close.
func Close(db *sqlx.DB) error {
	err := db.Close()
	if IsConnection(err) {
		return nil
	}
	return err
}
