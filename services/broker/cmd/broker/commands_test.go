package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Tests{M: m}) }

func TestMigrate_RepeatedRun_IsIdempotent(t *testing.T) {
	url := pgtest.Database(t, nil)
	t.Setenv("KEB_DATABASE_URL", url)
	for range 2 {
		require.NoError(t, migrate(t.Context(), slog.New(slog.DiscardHandler)))
	}
	var tables int
	db, err := postgres.Open(t.Context(), postgres.Config{URL: url})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	require.NoError(t, db.GetContext(t.Context(), &tables, `SELECT count(*) FROM information_schema.tables WHERE table_schema = 'broker' AND table_name = 'instances'`))
	if tables != 1 {
		t.Errorf("%d tables broker.instances, want 1", tables)
	}
}

func TestMigrate_MissingVariable_IsNamed(t *testing.T) {
	t.Setenv("KEB_DATABASE_URL", "")
	if err := migrate(t.Context(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "KEB_DATABASE_URL") {
		t.Errorf("got %v", err)
	}
}

func TestCatalog_Command_PrintsPlans(t *testing.T) {
	answer := `{"services":[{"id":"s","name":"kyma","description":"d","bindable":false,"plans":[{"id":"a","name":"aws","description":"d"},{"id":"b","name":"trial","description":"d"}]}]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "platform" || password != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(server.Close)
	t.Setenv("KEB_BROKER_URL", server.URL)
	t.Setenv("KEB_OSB_USER", "platform")
	t.Setenv("KEB_OSB_PASSWORD", "secret")
	var out strings.Builder
	if err := catalog(t.Context(), &out); err != nil || out.String() != "plans: aws, trial\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
	t.Setenv("KEB_OSB_PASSWORD", "wrong")
	if err := catalog(t.Context(), &out); err == nil {
		t.Error("no error with a wrong password")
	}
	answer = `{"services":[]}`
	t.Setenv("KEB_OSB_PASSWORD", "secret")
	if err := catalog(t.Context(), &out); err == nil || !strings.Contains(err.Error(), "no plans") {
		t.Errorf("an empty catalog: %v", err)
	}
}
