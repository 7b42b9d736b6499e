package testkit

import (
	"context"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/postgres"
)

func openDB(t *testing.T, url string) *sqlx.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Config{URL: url})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func tableWith(n int) func(context.Context, *sqlx.DB) error {
	return func(ctx context.Context, db *sqlx.DB) error {
		_, err := db.ExecContext(ctx, `CREATE TABLE numbers AS SELECT $1::int AS n`, n)
		return err
	}
}

func TestPostgres_EachTest_GetsItsOwnCopy(t *testing.T) {
	t.Parallel()
	runs := 0
	migrate := func(ctx context.Context, db *sqlx.DB) error {
		runs++
		return tableWith(1)(ctx, db)
	}
	first := openDB(t, Postgres(t, migrate))
	_, err := first.ExecContext(t.Context(), `DELETE FROM numbers`)
	require.NoError(t, err)
	second := openDB(t, Postgres(t, migrate))
	var rows int
	require.NoError(t, second.GetContext(t.Context(), &rows, `SELECT count(*) FROM numbers`))
	if rows != 1 {
		t.Errorf("the second database has %d rows, want the migrated 1", rows)
	}
	if runs != 1 {
		t.Errorf("migrated %d times, want once", runs)
	}
}

func TestPostgres_DifferentClosures_HaveTemplates(t *testing.T) {
	t.Parallel()
	for _, want := range []int{1, 2} {
		db := openDB(t, Postgres(t, tableWith(want)))
		var n int
		require.NoError(t, db.GetContext(t.Context(), &n, `SELECT n FROM numbers`))
		if n != want {
			t.Errorf("got the database of %d, want %d", n, want)
		}
	}
}

func TestPostgres_TestEnds_RemovesDatabase(t *testing.T) {
	t.Parallel()
	var url, name string
	t.Run("uses one", func(t *testing.T) {
		url = Postgres(t, nil)
		require.NoError(t, openDB(t, url).GetContext(t.Context(), &name, `SELECT current_database()`))
	})
	var exists bool
	err := openDB(t, Postgres(t, nil)).GetContext(t.Context(), &exists, `SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)`, name)
	require.NoError(t, err)
	if exists {
		t.Errorf("database %s is still there", name)
	}
}

func TestFromContainer_DockerEngine_RunsAServer(t *testing.T) {
	t.Parallel()
	Suite(t, "containers")
	server, err := fromContainer(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.close(context.WithoutCancel(t.Context()))) })
	name, err := server.database(t.Context(), tableWith(1))
	require.NoError(t, err)
	var n int
	require.NoError(t, openDB(t, withDatabase(server.url, name)).GetContext(t.Context(), &n, `SELECT n FROM numbers`))
	if n != 1 {
		t.Errorf("the database in the container has %d, want 1", n)
	}
}
