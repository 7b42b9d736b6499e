package main

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Tests{M: m}) }

func TestMigrateMakesTheSchemaAndMayRunAgain(t *testing.T) {
	url := pgtest.Database(t, nil)
	t.Setenv("KEB_DATABASE_URL", url)
	for range 2 {
		require.NoError(t, migrate(t.Context(), slog.New(slog.DiscardHandler)))
	}
	db, err := postgres.Open(t.Context(), postgres.Config{URL: url})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	var tables int
	if err := db.GetContext(t.Context(), &tables,
		`SELECT count(*) FROM information_schema.tables WHERE table_schema = 'orchestrator' AND table_name = 'operations'`); err != nil {
		t.Fatal(err)
	}
	if tables != 1 {
		t.Errorf("%d tables orchestrator.operations, want 1", tables)
	}
}

func TestMigrateNamesTheMissingVariable(t *testing.T) {
	t.Setenv("KEB_DATABASE_URL", "")
	if err := migrate(t.Context(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "KEB_DATABASE_URL") {
		t.Errorf("got %v", err)
	}
}
