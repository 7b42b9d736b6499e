// Package committed runs the NATS server with the configuration of this repository, deploy/nats/nats.conf: the users and accounts of an
// installation.
package committed

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
)

// NATS runs the server until the test ends. root is the folder of the repository.
func NATS(t *testing.T, root string) *server.Server {
	t.Helper()
	path := filepath.Join(root, "deploy/nats/nats.conf")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, name := range regexp.MustCompile(`\$(KEB_NATS_PASSWORD_[A-Z_]+)`).FindAllStringSubmatch(string(text), -1) {
		t.Setenv(name[1], passwordIn(name[1]))
	}
	opts, err := server.ProcessConfigFile(path)
	require.NoError(t, err)
	opts.Host, opts.Port, opts.HTTPPort, opts.StoreDir, opts.NoLog, opts.NoSigs = "127.0.0.1", server.RANDOM_PORT, 0, t.TempDir(), true, true
	srv, err := server.NewServer(opts)
	require.NoError(t, err)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server does not come up")
	}
	return srv
}

// Password is that of a user of the server.
func Password(user string) string {
	return passwordIn("KEB_NATS_PASSWORD_" + strings.ToUpper(strings.ReplaceAll(user, "-", "_")))
}

func passwordIn(variable string) string { return "p-" + strings.ToLower(variable) }
