// Package servicetest holds what the tests of services have in common about their settings.
package servicetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/service"
)

// Settings fuzzes the settings of a service: one may be anything, as a value or in a file. It is taken, or the error names a variable and
// repeats no secret. newSettings makes the struct that service.LoadEnv fills; needed are the variables that must be there besides, and seeds
// those to begin with, these without the prefix KEB_.
func Settings(f *testing.F, newSettings func() any, needed, seeds map[string]string) {
	for name, value := range seeds {
		f.Add(name, value, false)
		f.Add(name, value, true)
	}
	f.Fuzz(func(t *testing.T, name, value string, inFile bool) {
		if strings.ContainsAny(name, "=\x00") || strings.HasSuffix(name, "_FILE") || strings.ContainsRune(value, 0) {
			return // nobody can set that, or it names a file of this machine
		}
		name = "KEB_" + name
		for key, good := range needed {
			t.Setenv(key, good)
		}
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
		err := service.LoadEnv(newSettings())
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "KEB_") {
			t.Errorf("%s: the error names no variable: %v", name, err)
		}
		if secret(name) && len(value) > 12 && strings.Contains(err.Error(), value) {
			t.Errorf("%s: the error repeats the secret: %v", name, err)
		}
	})
}

// secret tells by its name that a variable holds a secret.
func secret(name string) bool {
	for _, end := range []string{"PASSWORD", "SECRET", "KEYS", "KEY"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}
