package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/service"
)

// One setting may be anything, as a value or in a file: it is taken, or the error names a variable and repeats no secret.
func FuzzSettings(f *testing.F) {
	for name, value := range map[string]string{
		"DATABASE_URL": "postgres://keb@127.0.0.1:1/keb", "STAGE_KEYS": "CANARY-that-is-no-key", "ACCESS_SESSION_KEY": "CANARY-that-is-no-key",
		"ADMISSION": "provision:500,:", "OPERATIONS_KEEP": "1h", "ARCHIVE_KEEP": "-1h", "OVERLAYS": "nowhere", "OPERATOR_ADDR": ":8081",
		"HTTP_MAX_CONNECTIONS": "-1", "CLIENT_RATE": "1e9", "ACCESS": "some", "ACCESS_OIDC_ISSUER": "https://a:b@issuer",
		"ACCESS_OIDC_CLIENT_SECRET": "CANARY-of-the-client", "ACCESS_TRUSTED_PROXIES": "10.0.0.0/8,proxy",
	} {
		f.Add(name, value, name == "DATABASE_URL")
	}
	f.Fuzz(func(t *testing.T, name, value string, inFile bool) {
		if strings.ContainsAny(name, "=\x00") || strings.HasSuffix(name, "_FILE") || strings.ContainsRune(value, 0) {
			t.Skip("nobody can set that, or it names a file of this machine")
		}
		name = "KEB_" + name
		t.Setenv("KEB_DATABASE_URL", "postgres://keb@127.0.0.1:1/keb")
		if inFile {
			path := filepath.Join(t.TempDir(), "value")
			if err := os.WriteFile(path, []byte(value), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv(name, "")
			t.Setenv(name+"_FILE", path)
		} else {
			t.Setenv(name, value)
		}
		var cfg config
		err := service.LoadEnv(&cfg)
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "KEB_") {
			t.Errorf("%s: the error names no variable: %v", name, err)
		}
		secret := strings.HasSuffix(name, "PASSWORD") || strings.HasSuffix(name, "SECRET") || strings.HasSuffix(name, "KEYS") || strings.HasSuffix(name, "KEY")
		if secret && len(value) > 12 && strings.Contains(err.Error(), value) {
			t.Errorf("%s: the error repeats the secret: %v", name, err)
		}
	})
}
