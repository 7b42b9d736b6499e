package testkit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzSettings fuzzes one setting of a service, as a value or in a file. The setting must be accepted, or the error must name a variable
// and contain no secret. load reads the settings from the environment. needed holds the other required variables, and seeds the first
// variables to try, without the prefix KEB_.
func FuzzSettings(f *testing.F, load func() error, needed, seeds map[string]string) {
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
		err := load()
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "KEB_") {
			t.Errorf("%s: the error contains no variable: %v", name, err)
		}
		if isSecret(name) && len(value) > 12 && strings.Contains(err.Error(), value) {
			t.Errorf("%s: the error contains the secret: %v", name, err)
		}
	})
}

// isSecret reports whether a variable contains a secret, by its name.
func isSecret(name string) bool {
	for _, end := range []string{"PASSWORD", "SECRET", "KEYS", "KEY"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}
