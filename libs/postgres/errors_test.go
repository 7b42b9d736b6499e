package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestIsUniqueViolation_Constraint_IsCompared(t *testing.T) {
	t.Parallel()
	db := database(t)
	exec(t, db, `CREATE TABLE t (a int CONSTRAINT t_a UNIQUE, b int CONSTRAINT t_b UNIQUE)`)
	exec(t, db, `INSERT INTO t VALUES (1, 1)`)
	_, err := db.ExecContext(t.Context(), `INSERT INTO t VALUES ($1, $2)`, 2, 1)
	err = fmt.Errorf("insert: %w", err)
	for constraint, want := range map[string]bool{"": true, "t_b": true, "t_a": false} {
		if got := postgres.IsUniqueViolation(err, constraint); got != want {
			t.Errorf("constraint %q: got %v, want %v", constraint, got, want)
		}
	}
	if postgres.IsRetryable(err) || postgres.IsConnection(err) {
		t.Error("a unique violation is neither retryable nor a connection error")
	}
}

func TestIsRetryable_Conflicts_ReturnsTrue(t *testing.T) {
	t.Parallel()
	db := database(t)
	exec(t, db, `CREATE TABLE t (id int PRIMARY KEY, n int)`)
	exec(t, db, `INSERT INTO t VALUES (1, 0), (2, 0)`)

	t.Run("a lock that is taken", func(t *testing.T) {
		err := postgres.InTx(within(t, time.Minute), db, func(tx *sqlx.Tx) error {
			exec(t, tx, `SELECT 1 FROM t WHERE id = 1 FOR UPDATE`)
			_, err := db.ExecContext(within(t, time.Minute), `SELECT 1 FROM t WHERE id = 1 FOR UPDATE NOWAIT`)
			return err
		})
		if !postgres.IsRetryable(err) {
			t.Errorf("%v is not retryable", err)
		}
	})
	t.Run("a serialization failure", func(t *testing.T) {
		ctx := within(t, time.Minute)
		tx, err := db.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		exec(t, tx, `SELECT n FROM t`)
		exec(t, db, `UPDATE t SET n = n + 1`)
		if _, err = tx.ExecContext(ctx, `UPDATE t SET n = n + 1`); !postgres.IsRetryable(err) {
			t.Errorf("%v is not retryable", err)
		}
	})
}

func TestIsConnection_ServerErrors_ReturnsTrue(t *testing.T) {
	t.Parallel()
	db := database(t)
	if _, err := db.ExecContext(t.Context(), `SELECT 1/0`); err == nil || postgres.IsConnection(err) {
		t.Errorf("%v is a connection error", err)
	}
	// The server ends the session while a transaction is open.
	err := postgres.InTx(within(t, time.Minute), db, func(tx *sqlx.Tx) error {
		var pid int
		if err := tx.Get(&pid, `SELECT pg_backend_pid()`); err != nil {
			return err
		}
		exec(t, db, `SELECT pg_terminate_backend($1)`, pid)
		testkit.Eventually(t, time.Minute, "the end of the session", func() bool {
			return count(t, db, fmt.Sprintf(`SELECT count(*) FROM pg_stat_activity WHERE pid = %d`, pid)) == 0
		})
		_, err := tx.Exec(`SELECT 1`)
		return err
	})
	if !postgres.IsConnection(err) {
		t.Errorf("%v is not a connection error", err)
	}
	// The limit for temporary files simulates a full disk.
	if _, err := db.ExecContext(t.Context(), `SET temp_file_limit = '64kB'; SET work_mem = '64kB'; SELECT g FROM generate_series(1, 100000) g ORDER BY -g`); !postgres.IsConnection(err) {
		t.Errorf("%v is not a connection error", err)
	}
	for _, err := range []error{nil, context.Canceled, errors.New("other")} {
		if postgres.IsConnection(err) || postgres.IsRetryable(err) || postgres.IsUniqueViolation(err, "") {
			t.Errorf("%v is classified", err)
		}
	}
}

// An expired password, or a database that accepts no connections, is not an error of the statement that needed a session.
func TestIsConnection_RejectedSession_ReturnsTrue(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t, nil)
	db := open(t, postgres.Config{URL: address, MaxOpen: 1})
	u, err := url.Parse(address)
	require.NoError(t, err)
	name := strings.Trim(u.Path, "/")
	u.Path = "/postgres"
	admin := open(t, postgres.Config{URL: u.String()})
	exec(t, admin, `ALTER DATABASE "`+name+`" ALLOW_CONNECTIONS false`)
	exec(t, admin, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '`+name+`'`)
	testkit.Eventually(t, time.Minute, "the session ends", func() bool {
		_, err = db.ExecContext(t.Context(), `SELECT 1`)
		return err != nil && strings.Contains(err.Error(), "not currently accepting connections")
	})
	if !postgres.IsConnection(err) {
		t.Errorf("%v is not taken for an error of the connection", err)
	}
}
