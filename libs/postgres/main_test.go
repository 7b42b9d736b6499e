package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Tests{M: m}) }

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func open(t *testing.T, cfg postgres.Config) *sqlx.DB {
	t.Helper()
	db, err := postgres.Open(within(t, time.Minute), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func database(t *testing.T) *sqlx.DB {
	t.Helper()
	return open(t, postgres.Config{URL: pgtest.Database(t, nil)})
}

func exec(t *testing.T, db sqlx.ExecerContext, statement string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(within(t, time.Minute), statement, args...)
	require.NoError(t, err)
}

func count(t *testing.T, db *sqlx.DB, query string) int {
	t.Helper()
	var n int
	require.NoError(t, db.GetContext(within(t, time.Minute), &n, query))
	return n
}
