package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxWorkerModules is the number of modules in the go.sum of a team's worker. Lower it when libs requires fewer.
const maxWorkerModules = 40

// A team that writes a worker downloads, checks and updates what its go.sum lists.
func TestWorkerModules_ServersAndDatabases_AreMissing(t *testing.T) {
	t.Parallel()
	checkWorkerModules(t, filepath.Join(root, "examples/hello-world-worker/go.sum"))
}

func checkWorkerModules(t *testing.T, sum string) {
	t.Helper()
	content, err := os.ReadFile(sum)
	require.NoError(t, err)
	modules := map[string]bool{}
	for line := range strings.Lines(string(content)) {
		module, _, _ := strings.Cut(line, " ")
		modules[module] = true
	}
	if len(modules) > maxWorkerModules {
		t.Errorf("go.sum lists %d modules, want at most %d", len(modules), maxWorkerModules)
	}
	unwanted := regexp.MustCompile(`nats-server|testcontainers|embedded-postgres|/sqlx$|/lib/pq$|goose|docker|moby`)
	for module := range modules {
		if unwanted.MatchString(module) {
			t.Errorf("go.sum lists %s, which no worker needs", module)
		}
	}
}

// Tests run the same NATS server as `keb up`.
func TestNATSServer_TestsAndProduct_HaveOneVersion(t *testing.T) {
	t.Parallel()
	version := func(module string) string {
		content, err := os.ReadFile(filepath.Join(root, module, "go.mod"))
		require.NoError(t, err)
		found := regexp.MustCompile(`github.com/nats-io/nats-server/v2 (v\S+)`).FindSubmatch(content)
		require.NotNil(t, found, "%s requires no NATS server", module)
		return string(found[1])
	}
	if product, tests := version("cmd/keb"), version("tools/nats"); product != tests {
		t.Errorf("tools/nats has %s, cmd/keb has %s", tests, product)
	}
}
