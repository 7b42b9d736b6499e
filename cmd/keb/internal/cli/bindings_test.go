package cli

import (
	"strings"
	"testing"
)

// Not parallel: the environment is the process's.
func TestTheNumberOfAccountsIsReadAsTheLandscapeDoes(t *testing.T) {
	for text, want := range map[string]int{"": 0, "0": 0, "40": 40} {
		t.Setenv("KEB_LANDSCAPE_BINDINGS", text)
		if got, err := bindingsFromEnv(); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"-1", "many", "1.5", " 3"} {
		t.Setenv("KEB_LANDSCAPE_BINDINGS", text)
		if _, err := bindingsFromEnv(); err == nil || !strings.Contains(err.Error(), "KEB_LANDSCAPE_BINDINGS") || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v, want an error that names it", text, err)
		}
	}
}
