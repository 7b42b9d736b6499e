package main

import (
	"testing"

	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/testkit"
)

func FuzzSettings(f *testing.F) {
	testkit.FuzzSettings(f, func() error { return service.LoadEnv(&config{}) }, map[string]string{
		"KEB_DATABASE_URL": "postgres://keb@127.0.0.1:1/keb",
	}, map[string]string{
		"DATABASE_URL": "postgres://keb@127.0.0.1:1/keb", "STAGE_KEYS": "CANARY-that-is-no-key", "ACCESS_SESSION_KEY": "CANARY-that-is-no-key",
		"OPERATIONS_KEEP": "1h", "ARCHIVE_KEEP": "-1h", "OVERLAYS": "nowhere", "OPERATOR_ADDR": ":8081",
		"HTTP_MAX_CONNECTIONS": "-1", "CLIENT_RATE": "1e9", "ACCESS": "some", "ACCESS_OIDC_ISSUER": "https://a:b@issuer",
		"ACCESS_OIDC_CLIENT_SECRET": "CANARY-of-the-client", "ACCESS_TRUSTED_PROXIES": "10.0.0.0/8,proxy",
	})
}
