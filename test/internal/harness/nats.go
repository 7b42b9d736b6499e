package harness

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit"
)

// NATS runs the NATS server of a configuration file until the test ends, on a free port, with an empty store and without a log. change
// may change its options; nil changes nothing.
func NATS(t testing.TB, file string, change func(*server.Options)) *server.Server {
	t.Helper()
	opts, err := server.ProcessConfigFile(file)
	require.NoError(t, err)
	opts.Host, opts.Port, opts.HTTPPort, opts.StoreDir, opts.NoLog, opts.NoSigs = "127.0.0.1", server.RANDOM_PORT, 0, testkit.MemoryDir(t), true, true
	if change != nil {
		change(opts)
	}
	srv, err := server.NewServer(opts)
	require.NoError(t, err)
	srv.ConfigureLogger()
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(startLimit) {
		t.Fatalf("NATS is not ready within %s", startLimit)
	}
	return srv
}

// committedNATS runs the server of deploy/nats/nats.conf: it has the users and accounts of an installation. The server reads the passwords
// from the environment.
func committedNATS(t *testing.T, root string) *server.Server {
	t.Helper()
	path := filepath.Join(root, "deploy/nats/nats.conf")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, name := range regexp.MustCompile(`\$(KEB_NATS_PASSWORD_[A-Z_]+)`).FindAllStringSubmatch(string(text), -1) {
		t.Setenv(name[1], passwordIn(name[1]))
	}
	return NATS(t, path, nil)
}

// Password returns the password of a user of Services with the users of the repository.
func Password(user string) string {
	return passwordIn("KEB_NATS_PASSWORD_" + strings.ToUpper(strings.ReplaceAll(user, "-", "_")))
}

func passwordIn(variable string) string { return "p-" + strings.ToLower(variable) }
