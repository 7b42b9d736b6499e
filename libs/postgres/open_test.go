package postgres_test

import (
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestOpen_Config_IsApplied(t *testing.T) {
	t.Parallel()
	db := open(t, postgres.Config{
		URL: pgtest.Database(t, nil), MaxOpen: 3, ApplicationName: "keb test", StatementTimeout: 1500 * time.Millisecond,
		IdleInTransaction: 2500 * time.Millisecond, ByIndex: true,
	})
	for setting, want := range map[string]string{
		"application_name": "keb test", "statement_timeout": "1500ms", "idle_in_transaction_session_timeout": "2500ms",
		"enable_seqscan": "off", "plan_cache_mode": "force_generic_plan", "jit": "off",
	} {
		var got string
		require.NoError(t, db.GetContext(t.Context(), &got, `SELECT current_setting($1)`, setting))
		if got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
	if got := db.Stats().MaxOpenConnections; got != 3 {
		t.Errorf("the pool takes %d connections, want 3", got)
	}
}

func TestOpen_ServerStartsLater_Waits(t *testing.T) {
	t.Parallel()
	target, err := url.Parse(pgtest.Database(t, nil))
	require.NoError(t, err)
	proxy := testkit.Proxy(t, target.Host)
	proxy.Cut()
	through := *target
	through.Host = proxy.Addr()
	opened := make(chan error, 1)
	go func() {
		db, err := postgres.Open(within(t, time.Minute), postgres.Config{URL: through.String()})
		if err == nil {
			err = db.Close()
		}
		opened <- err
	}()
	testkit.Eventually(t, time.Minute, "a second attempt", func() bool { return proxy.Refused() > 1 })
	proxy.Restore()
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

func TestOpen_ContextEnds_ReturnsReason(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := ln.Addr().String()
	require.NoError(t, ln.Close())
	_, err = postgres.Open(within(t, 4*time.Second), postgres.Config{URL: "postgres://u:canary@" + addr + "/db"})
	if err == nil || !strings.Contains(err.Error(), "connection refused") || !strings.Contains(err.Error(), addr+"/db") {
		t.Errorf("got %v, want the address and that it refused", err)
	}
	if !postgres.IsConnection(err) {
		t.Errorf("%v is not a connection error", err)
	}
	if err != nil && strings.Contains(err.Error(), "canary") {
		t.Errorf("the password is in %v", err)
	}
}

func TestOpen_PermanentError_FailsImmediately(t *testing.T) {
	t.Parallel()
	good, err := url.Parse(pgtest.Database(t, nil))
	require.NoError(t, err)
	noDatabase, wrongUser := *good, *good
	noDatabase.Path = "/missing"
	wrongUser.User = url.UserPassword("nobody_we_know", "canary")
	tests := map[string]struct{ url, want string }{
		"missing database": {noDatabase.String(), `database "missing" does not exist`},
		"wrong user":       {wrongUser.String(), "nobody_we_know"},
		"empty URL":        {"", "the database URL is empty"},
		"no URL":           {"postgres://u:canary@host:port/db", "cannot be parsed"},
		"wrong scheme":     {"mysql://u:canary@host/db", `scheme "mysql"`},
		"unknown sslmode":  {strings.Replace(good.String(), "sslmode=disable", "sslmode=canary", 1), "not understood"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			_, err := postgres.Open(within(t, time.Minute), postgres.Config{URL: tt.url})
			if err == nil {
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "canary") {
				t.Errorf("got %v, want %q in it and no password", err, tt.want)
			}
			if took := time.Since(begin); took > 30*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}
