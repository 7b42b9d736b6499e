package postgres

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDSN_Defaults_AreAdded(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		cfg  Config
		want map[string]string
	}{
		"another host gets TLS": {
			Config{URL: "postgres://u:p@db.example.com/keb"},
			map[string]string{"sslmode": "verify-full", "binary_parameters": "yes", "connect_timeout": "5"},
		},
		"loopback by number":   {Config{URL: "postgres://127.0.0.1:5432/keb"}, map[string]string{"sslmode": "disable"}},
		"loopback by number 6": {Config{URL: "postgres://[::1]:5432/keb"}, map[string]string{"sslmode": "disable"}},
		"loopback by name":     {Config{URL: "postgresql://localhost/keb"}, map[string]string{"sslmode": "disable"}},
		"socket folder":        {Config{URL: "postgres:///keb?host=/run/pg"}, map[string]string{"sslmode": "disable", "host": "/run/pg"}},
		"host as an option":    {Config{URL: "postgres:///keb?host=db.example.com"}, map[string]string{"sslmode": "verify-full"}},
		"one host":             {Config{URL: "postgres://db:6432/keb"}, map[string]string{sessionAttrs: "read-write", "host": ""}},
		"several hosts": {
			Config{URL: "postgres://u:p@10.0.0.1:5433,db-2,[::1]:5434/keb"},
			map[string]string{"host": "10.0.0.1,db-2,::1", "port": "5433,5432,5434", "sslmode": "verify-full", sessionAttrs: "read-write"},
		},
		"several hosts on loopback": {
			Config{URL: "postgres://127.0.0.1:1,localhost:2/keb?target_session_attrs=primary"},
			map[string]string{"sslmode": "disable", sessionAttrs: "primary"},
		},
		"the URL decides": {
			Config{URL: "postgres://db/keb?sslmode=verify-full&connect_timeout=1&application_name=url"},
			map[string]string{"sslmode": "verify-full", "connect_timeout": "1", "application_name": "url"},
		},
		"the config over the URL": {
			Config{URL: "postgres://db/keb?application_name=url", ApplicationName: "config", StatementTimeout: time.Microsecond},
			map[string]string{"application_name": "config", "statement_timeout": "1"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, _, err := tt.cfg.dsn()
			require.NoError(t, err)
			u, err := url.Parse(dsn)
			require.NoError(t, err)
			for key, want := range tt.want {
				if got := u.Query().Get(key); got != want {
					t.Errorf("%s is %q, want %q", key, got, want)
				}
			}
		})
	}
}

func TestDSN_Standby_IsRecognized(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]bool{
		"postgres://db/keb":                                 false,
		"postgres://db-1,db-2/keb":                          true,
		"postgres:///keb?host=db-1,db-2":                    true,
		"postgres://db-rw/keb?target_session_attrs=primary": true,
	} {
		if _, got, err := (Config{URL: url}).dsn(); err != nil || got != want {
			t.Errorf("%s: got %t, %v, want %t", url, got, err, want)
		}
	}
}

func TestDSN_InvalidHosts_AreRejected(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"postgres://u:canary@db-1,/keb":                               `host ""`,
		"postgres://u:canary@db-1:x,db-2/keb":                         `host "db-1:x"`,
		"postgres://u:canary@db-1,db-2/keb?host=db-3":                 "leave the parameter out",
		"postgres://u:canary@db-1,db-2/%zz":                           "cannot be parsed",
		"postgres://u:canary@db-1,db-2/keb?target_session_attrs=any":  "target_session_attrs=any; want read-write or primary",
		"postgres://u:canary@db/keb?target_session_attrs=read-canary": "want read-write or primary",
	} {
		_, _, err := Config{URL: url}.dsn()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), ":canary") {
			t.Errorf("%s: got %v, want %q and no password", url, err, want)
		}
	}
}

func TestAddress_SeveralHosts_AreListed(t *testing.T) {
	t.Parallel()
	if got, want := address("postgres://u:canary@db-1:1,db-2/keb"), "db-1:1,db-2:5432/keb"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestDSN_BinaryParametersNo_IsRejected(t *testing.T) {
	t.Parallel()
	_, _, err := Config{URL: "postgres://u:secret@db/keb?binary_parameters=no"}.dsn()
	if err == nil || !strings.Contains(err.Error(), "binary_parameters=no") || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}
