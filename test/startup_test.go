package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/test/internal/harness"
)

// refuse checks that keb up ends at once with one line that contains all texts.
func refuse(t *testing.T, sys *harness.System, texts ...string) {
	t.Helper()
	p := sys.Launch()
	if code := p.ExitCode(limit); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	out := p.Output()
	if strings.Count(out, "\n") != 1 || !strings.HasPrefix(out, "keb: ") {
		t.Errorf("printed %q, want one line that begins with keb:", out)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			t.Errorf("printed %q, which does not contain %q", out, text)
		}
	}
}

func TestStartup_DataFolderInUse_Fails(t *testing.T) {
	t.Parallel()
	first := harness.Start(t, harness.Options{})
	second := harness.New(t, harness.Options{})
	second.DataDir = first.DataDir
	refuse(t, second, first.DataDir, fmt.Sprintf("process %d", first.Process().PID()), "--data-dir")
	// The one that runs goes on.
	o := harness.Azure()
	first.AwaitEnd(first.Provision(o), "succeeded", limit)
}

func TestStartup_PostgresFails_OneLineError(t *testing.T) {
	t.Parallel()
	sys := harness.Start(t, harness.Options{})
	sys.Stop()
	dir := filepath.Join(sys.DataDir, "postgres")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "PG_VERSION"), []byte("7.4\n"), 0o600))
	refuse(t, sys, dir, "KEB_DATABASE_URL")
}

func TestStartup_InvalidOverlay_NamesFileAndLine(t *testing.T) {
	t.Parallel()
	sys := harness.New(t, harness.Options{Overlays: []string{"testdata/typo"}})
	refuse(t, sys, "testdata/typo/provision.yaml:4: ", `"EDP_Registratoin"`)
	if _, err := os.Stat(sys.DataDir); err == nil {
		t.Error("a data folder was made before the problem was found")
	}
}
