package pgtest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/testkit"
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

func TestDatabase_EachTest_GetsItsOwnCopy(t *testing.T) {
	t.Parallel()
	runs := 0
	migrate := func(ctx context.Context, db *sqlx.DB) error {
		runs++
		return tableWith(1)(ctx, db)
	}
	first := openDB(t, Database(t, migrate))
	_, err := first.ExecContext(t.Context(), `DELETE FROM numbers`)
	require.NoError(t, err)
	second := openDB(t, Database(t, migrate))
	var rows int
	require.NoError(t, second.GetContext(t.Context(), &rows, `SELECT count(*) FROM numbers`))
	if rows != 1 {
		t.Errorf("the second database has %d rows, want the migrated 1", rows)
	}
	if runs != 1 {
		t.Errorf("migrated %d times, want once", runs)
	}
}

func TestDatabase_DifferentClosures_HaveTemplates(t *testing.T) {
	t.Parallel()
	for _, want := range []int{1, 2} {
		db := openDB(t, Database(t, tableWith(want)))
		var n int
		require.NoError(t, db.GetContext(t.Context(), &n, `SELECT n FROM numbers`))
		if n != want {
			t.Errorf("got the database of %d, want %d", n, want)
		}
	}
}

func TestDatabase_TestEnds_RemovesDatabase(t *testing.T) {
	t.Parallel()
	var url, name string
	t.Run("uses one", func(t *testing.T) {
		url = Database(t, nil)
		require.NoError(t, openDB(t, url).GetContext(t.Context(), &name, `SELECT current_database()`))
	})
	var exists bool
	err := openDB(t, Database(t, nil)).GetContext(t.Context(), &exists, `SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)`, name)
	require.NoError(t, err)
	if exists {
		t.Errorf("database %s is still there", name)
	}
}

func TestFromContainer_DockerEngine_RunsAServer(t *testing.T) {
	t.Parallel()
	testkit.Suite(t, "containers")
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

func TestDatabase_NoSource_NamesAlternatives(t *testing.T) {
	t.Parallel()
	broken := func(name string) source {
		return source{name, func(context.Context) (*pgServer, error) { return nil, fmt.Errorf("no %s", name) }}
	}
	_, err := firstOf(t.Context(), broken("binaries"), broken("engine"))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"apt-get install postgresql", DatabaseURLEnv, "Docker", "no binaries", "no engine"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
}

func TestDatabase_AddressVariable_IsUsed(t *testing.T) {
	address := Database(t, nil)
	t.Setenv(DatabaseURLEnv, address)
	s, err := startServer(t.Context())
	require.NoError(t, err)
	name, err := s.database(t.Context(), tableWith(3))
	require.NoError(t, err)
	db := openDB(t, withDatabase(address, name))
	var n int
	if err := db.GetContext(t.Context(), &n, `SELECT n FROM numbers`); err != nil || n != 3 {
		t.Errorf("got %d, %v", n, err)
	}
	s.made = append(s.made, name)
	if err := s.close(t.Context()); err != nil {
		t.Error(err)
	}

	t.Setenv(DatabaseURLEnv, "postgres://nobody_we_know:canary@"+strings.SplitN(strings.SplitN(address, "@", 2)[1], "?", 2)[0])
	_, err = startServer(t.Context())
	if err == nil || !strings.Contains(err.Error(), DatabaseURLEnv) || strings.Contains(err.Error(), "canary") {
		t.Errorf("got %v, want an error that names the variable", err)
	}
}
