// Package servicetest provides tests of the settings of services.
package servicetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/service"
)

// Settings fuzzes one setting of a service, as a value or in a file. The setting must be accepted, or the error must name a variable and
// contain no secret. newSettings creates the struct that service.LoadEnv fills. needed holds the other required variables, and seeds
// the first variables to try, without the prefix KEB_.
func Settings(f *testing.F, newSettings func() any, needed, seeds map[string]string) {
	for name, value := range seeds {
		f.Add(name, value, false)
		f.Add(name, value, true)
	}
	f.Fuzz(func(t *testing.T, name, value string, inFile bool) {
		if strings.ContainsAny(name, "=\x00") || strings.HasSuffix(name, "_FILE") || strings.ContainsRune(value, 0) {
			return // such a variable cannot be set, or it names a file of this machine
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
			t.Errorf("%s: the error contains no variable: %v", name, err)
		}
		if secret(name) && len(value) > 12 && strings.Contains(err.Error(), value) {
			t.Errorf("%s: the error contains the secret: %v", name, err)
		}
	})
}

// secret reports whether a variable contains a secret, by its name.
func secret(name string) bool {
	for _, end := range []string{"PASSWORD", "SECRET", "KEYS", "KEY"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}
