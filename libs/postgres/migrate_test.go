package postgres_test

import (
	"context"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
)

func files(statements ...string) fstest.MapFS {
	names := []string{"00001_first.sql", "00002_second.sql", "00003_third.sql"}
	fs := fstest.MapFS{}
	for i, s := range statements {
		fs[names[i]] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + s + ";\n")}
	}
	return fs
}

const (
	createTable = `CREATE TABLE shop.t (n int)`
	addColumn   = `ALTER TABLE shop.t ADD COLUMN m int`
)

func TestMigrate_Files_AreAppliedOnce(t *testing.T) {
	t.Parallel()
	db := database(t)
	ctx := within(t, time.Minute)
	for _, step := range []struct {
		name  string
		files fstest.MapFS
	}{
		{"an empty database", files(createTable)},
		{"nothing new", files(createTable)},
		{"a new file", files(createTable, addColumn)},
		{"the previous release", files(createTable)},
	} {
		require.NoErrorf(t, postgres.Migrate(ctx, db, "shop", step.files), "%s", step.name)
	}
	if n := count(t, db, `SELECT count(m) FROM shop.t`); n != 0 {
		t.Errorf("the table has %d rows", n)
	}
	if n := count(t, db, `SELECT max(version_id) FROM shop.schema_version`); n != 2 {
		t.Errorf("the version is %d, want 2", n)
	}
}

func TestMigrate_TwoSchemas_AreIndependent(t *testing.T) {
	t.Parallel()
	db := database(t)
	ctx := within(t, time.Minute)
	require.NoError(t, postgres.Migrate(ctx, db, "shop", files(createTable, addColumn)))
	require.NoError(t, postgres.Migrate(ctx, db, "store", files(`CREATE TABLE store.t (n int)`)))
	if n := count(t, db, `SELECT max(version_id) FROM store.schema_version`); n != 1 {
		t.Errorf("the version of the second schema is %d, want 1", n)
	}
}

func TestMigrate_Concurrent_AppliesOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, nil)
	ctx := within(t, time.Minute)
	var group errgroup.Group
	for range 4 {
		db := open(t, postgres.Config{URL: url})
		group.Go(func() error { return postgres.Migrate(ctx, db, "shop", files(createTable, addColumn)) })
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

func TestMigrate_FailingFile_IsRolledBackAndNamed(t *testing.T) {
	t.Parallel()
	db := database(t)
	ctx := within(t, time.Minute)
	err := postgres.Migrate(ctx, db, "shop", files(createTable, `CREATE TABLE shop.half (n int); SELECT nonsense`))
	if err == nil || !strings.Contains(err.Error(), "00002_second.sql") {
		t.Fatalf("got %v, want an error that names the file", err)
	}
	if n := count(t, db, `SELECT count(*) FROM pg_tables WHERE tablename = 'half'`); n != 0 {
		t.Error("half a migration was applied")
	}
	if err := postgres.Migrate(ctx, db, "shop", files(createTable, addColumn)); err != nil {
		t.Errorf("with the file repaired: %v", err)
	}
}

func TestUpgrade_Migration_HasNoTimeLimit(t *testing.T) {
	t.Parallel()
	err := postgres.Upgrade(t.Context(), postgres.Config{URL: pgtest.Database(t, nil)}, func(ctx context.Context, db *sqlx.DB) error {
		if deadline, limited := ctx.Deadline(); limited {
			t.Errorf("the migration must end by %s", deadline)
		}
		return postgres.Migrate(ctx, db, "shop", files(createTable))
	})
	require.NoError(t, err)
}

func TestMigrate_InvalidSchemaName_IsRejected(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "Shop", "a-b", `x"; DROP SCHEMA y; --`} {
		if err := postgres.Migrate(t.Context(), nil, name, files()); err == nil || !strings.Contains(err.Error(), "schema name") {
			t.Errorf("%q: got %v", name, err)
		}
	}
}
