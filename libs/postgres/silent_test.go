package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/libs/testkit"
)

// margin is the maximum time of a call after its context has ended: for the driver's cancel request, and a busy machine.
const margin = time.Minute

// behindProxy opens a database through a proxy that can stop forwarding.
func behindProxy(t *testing.T, cfg postgres.Config) (*sqlx.DB, *testkit.TCPProxy) {
	t.Helper()
	target, err := url.Parse(pgtest.Database(t, nil))
	require.NoError(t, err)
	proxy := testkit.Proxy(t, target.Host)
	target.Host = proxy.Addr()
	cfg.URL = target.String()
	return open(t, cfg), proxy
}

// returns fails the test if call exceeds a short context by more than margin, or if it succeeds.
func returns(t *testing.T, call func(ctx context.Context) error) {
	t.Helper()
	ctx := within(t, 200*time.Millisecond)
	done := make(chan error, 1)
	go func() { done <- call(ctx) }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("a silent database has answered")
		}
	case <-time.After(margin):
		t.Error("the call outlives its context")
	}
}

func TestCalls_SilentDatabase_EndWithContext(t *testing.T) {
	t.Parallel()
	const query = `SELECT 1`
	tests := map[string]func(t *testing.T, db *sqlx.DB) func(ctx context.Context) error{
		"query": func(_ *testing.T, db *sqlx.DB) func(ctx context.Context) error {
			return func(ctx context.Context) error {
				var n int
				return db.GetContext(ctx, &n, query)
			}
		},
		"exec": func(_ *testing.T, db *sqlx.DB) func(ctx context.Context) error {
			return func(ctx context.Context) error {
				_, err := db.ExecContext(ctx, query)
				return err
			}
		},
		"ping": func(_ *testing.T, db *sqlx.DB) func(ctx context.Context) error { return db.PingContext },
		"begin": func(_ *testing.T, db *sqlx.DB) func(ctx context.Context) error {
			return func(ctx context.Context) error {
				return postgres.InTx(ctx, db, func(*sqlx.Tx) error { return nil })
			}
		},
		"prepared statement": func(t *testing.T, db *sqlx.DB) func(ctx context.Context) error {
			stmt, err := db.PreparexContext(within(t, time.Minute), query)
			require.NoError(t, err)
			t.Cleanup(func() { _ = stmt.Close() })
			return func(ctx context.Context) error {
				_, err := stmt.ExecContext(ctx)
				return err
			}
		},
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, proxy := behindProxy(t, postgres.Config{MaxOpen: 1})
			call := prepare(t, db)
			proxy.Stall()
			returns(t, call)
			returns(t, call) // now on a new connection
			proxy.Restore()
			var n int
			if err := db.GetContext(within(t, time.Minute), &n, query); err != nil {
				t.Errorf("the database is back, but: %v", err)
			}
		})
	}
}

func TestInTx_SilentDatabase_EndsWithContext(t *testing.T) {
	t.Parallel()
	tests := map[string]func(tx *sqlx.Tx) error{
		"at a statement":  func(tx *sqlx.Tx) error { _, err := tx.Exec(`SELECT 1`); return err },
		"at the commit":   func(*sqlx.Tx) error { return nil },
		"at the rollback": func(*sqlx.Tx) error { return errors.New("roll back") },
	}
	for name, body := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, proxy := behindProxy(t, postgres.Config{MaxOpen: 1})
			returns(t, func(ctx context.Context) error {
				return postgres.InTx(ctx, db, func(tx *sqlx.Tx) error {
					if _, err := tx.ExecContext(ctx, `SELECT 1`); err != nil {
						return err
					}
					proxy.Stall()
					return body(tx)
				})
			})
		})
	}
}

// A statement that its context cancels costs its connection, and no other call uses that connection.
func TestPool_CancelledStatement_DropsConnection(t *testing.T) {
	t.Parallel()
	db := open(t, postgres.Config{URL: pgtest.Database(t, nil), MaxOpen: 1})
	stmt, err := db.PreparexContext(within(t, time.Minute), `SELECT pg_sleep($1)`)
	require.NoError(t, err)
	t.Cleanup(func() { _ = stmt.Close() })
	if _, err := stmt.ExecContext(within(t, 50*time.Millisecond), 60); err == nil {
		t.Fatal("the statement was not cut short")
	}
	// This is long enough to exceed a deadline that the first statement left behind.
	if _, err := stmt.ExecContext(within(t, time.Minute), 1.5); err != nil {
		t.Errorf("the next statement: %v", err)
	}
}

func TestClose_ServerIsGone_ReturnsNil(t *testing.T) {
	t.Parallel()
	db, proxy := behindProxy(t, postgres.Config{})
	var held []*sqlx.Conn
	for range 3 {
		conn, err := db.Connx(t.Context())
		require.NoError(t, err)
		held = append(held, conn)
	}
	for _, conn := range held {
		require.NoError(t, conn.Close())
	}
	proxy.Cut()
	if err := postgres.Close(db); err != nil {
		t.Errorf("closing fails with %v, though there is nothing left to close", err)
	}
}
