package main

import (
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/testkit"
)

func FuzzSettings(f *testing.F) {
	testkit.FuzzSettings(f, func() error { return service.LoadEnv(&config{}) }, map[string]string{
		"KEB_DATABASE_URL": "postgres://keb@127.0.0.1:1/keb", "KEB_OSB_USER": "keb", "KEB_OSB_PASSWORD": "keb",
		"KEB_SEAL_KEYS": "k1:" + strings.Repeat("A", 43) + "=",
	}, map[string]string{
		"DATABASE_URL": "postgres://keb@127.0.0.1:1/keb", "SEAL_KEYS": "CANARY-that-is-no-key", "OSB_PASSWORD": "CANARY-of-the-platform",
		"PLANS": "azure,,trial", "BINDABLE_PLANS": "azur", "BINDING_MIN_EXPIRATION": "1s", "OSB_MAXIMUM_POLLING": "1ms",
		"PLAN_CHANGES": "azure_lite:azure,free:aws|azure", "CATALOG_MODIFIED": "yesterday", "TRIAL_LIFETIME": "-1h",
		"HTTP_MAX_CONNECTIONS": "-1", "CLIENT_RATE": "1e9", "ACCESS": "none", "OSB_JWT_ISSUER": "https://issuer.example.org",
		"ACCESS_OIDC_ISSUER": "https://a:b@issuer", "ACCESS_TRUSTED_PROXIES": "10.0.0.0/8,proxy",
	})
}
