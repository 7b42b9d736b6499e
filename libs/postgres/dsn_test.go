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
			dsn, err := tt.cfg.dsn()
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

func TestDSN_BinaryParametersNo_IsRejected(t *testing.T) {
	t.Parallel()
	_, err := Config{URL: "postgres://u:secret@db/keb?binary_parameters=no"}.dsn()
	if err == nil || !strings.Contains(err.Error(), "binary_parameters=no") || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}
