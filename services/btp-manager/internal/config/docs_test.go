package config_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/services/btp-manager/internal/config"
)

//go:generate go test -count=1 -run ^TestSettings_Documentation_MatchesCode$ . -update

var update = flag.Bool("update", false, "write the table of settings into docs/btp-manager.md")

const begin, end = "<!-- settings:begin -->\n", "<!-- settings:end -->"

func TestSettings_Documentation_MatchesCode(t *testing.T) {
	t.Parallel()
	page := filepath.Join("..", "..", "..", "..", "docs", "btp-manager.md")
	raw, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, opened := strings.Cut(string(raw), begin)
	documented, after, closed := strings.Cut(rest, end)
	if !opened || !closed {
		t.Fatalf("%s has no markers for the table", page)
	}
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(before+begin+table()+end+after), 0o600))
		return
	}
	if diff := cmp.Diff(table(), documented); diff != "" {
		t.Errorf("run `make generate`: %s", diff)
	}
}

// table formats the settings: those of flag and ConfigMap, then the others.
func table() string {
	var runtime, start strings.Builder
	for _, s := range config.Settings() {
		def := "none"
		if s.Default != "" {
			def = "`" + s.Default + "`"
		}
		if s.FlagOnly {
			fmt.Fprintf(&start, "| `--%s` | %s | %s | %s |\n", s.Flag, def, s.Allowed, s.Meaning)
			continue
		}
		fmt.Fprintf(&runtime, "| `%s` | `--%s` | %s | %s | %s |\n", s.Key, s.Flag, def, s.Allowed, s.Meaning)
	}
	return "\n| Key | Flag | Default | Allowed | Meaning |\n|---|---|---|---|---|\n" + runtime.String() +
		"\nThese are flags only; they need a restart:\n\n| Flag | Default | Allowed | Meaning |\n|---|---|---|---|\n" + start.String() + "\n"
}
