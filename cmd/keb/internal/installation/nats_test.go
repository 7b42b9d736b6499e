package installation

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// patience is the time limit for expected events. It is generous for busy machines.
const patience = time.Minute

// start runs a server with the users of two workers.
func start(t *testing.T) (url string) {
	t.Helper()
	conf, err := RenderNATS(NATSConfig{
		Workers:  []string{"avs", "edp"},
		Password: func(user string) (string, error) { return fmt.Sprintf("%q", "secret of "+user), nil },
	})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(path, conf, 0o600))
	opts, err := server.ProcessConfigFile(path)
	require.NoError(t, err, "parse the configuration")
	opts.Host, opts.Port, opts.HTTPPort, opts.StoreDir, opts.NoLog, opts.NoSigs = "127.0.0.1", server.RANDOM_PORT, 0, t.TempDir(), true, true
	srv, err := server.NewServer(opts)
	require.NoError(t, err)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	return srv.ClientURL()
}

// test/bus tries all permissions of each user.
func TestRenderNATS_Users_NeedOwnPassword(t *testing.T) {
	t.Parallel()
	url := start(t)
	for user, password := range map[string]string{"worker-avs": "secret of worker-edp", "worker-edp": "", "": ""} {
		if _, err := nats.Connect(url, nats.UserInfo(user, password)); err == nil {
			t.Errorf("user %q can log on with the password %q", user, password)
		}
	}
	nc, err := nats.Connect(url, nats.UserInfo("worker-avs", "secret of worker-avs"), nats.Timeout(patience))
	require.NoError(t, err)
	nc.Close()
}

// A frozen replica must not keep its share of the requests.
func TestRenderNATS_ClientIsSilent_IsDisconnected(t *testing.T) {
	t.Parallel()
	conn, err := net.Dial("tcp", strings.TrimPrefix(start(t), "nats://"))
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = fmt.Fprint(conn, `CONNECT {"user": "worker-avs", "pass": "secret of worker-avs"}`+"\r\n")
	require.NoError(t, err)
	told, err := io.ReadAll(conn) // until the server closes the connection
	require.NoError(t, err)
	require.Contains(t, string(told), "Stale Connection")
}

func TestRenderNATS_CommittedFile_IsUpToDate(t *testing.T) {
	t.Parallel()
	committed, err := os.ReadFile("../../../../deploy/nats/nats.conf")
	require.NoError(t, err)
	var workers []string
	for _, m := range regexp.MustCompile(`user: "worker-([^"]+)"`).FindAllSubmatch(committed, -1) {
		workers = append(workers, string(m[1]))
	}
	want, err := RenderNATS(NATSConfig{Workers: workers, Password: PasswordFromEnvironment})
	require.NoError(t, err)
	if !bytes.Equal(committed, want) {
		t.Errorf("deploy/nats/nats.conf differs from the output of keb nats config: generate it again (-want +got):\n%s", cmp.Diff(string(want), string(committed)))
	}
}
