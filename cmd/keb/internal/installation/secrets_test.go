package installation

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"golang.org/x/crypto/bcrypt"

	"github.com/kyma-project/keb/libs/seal"
)

func config(t *testing.T, workers ...string) Config {
	t.Helper()
	return Config{Dir: t.TempDir(), Workers: workers, DatabaseHost: "postgres:5432", Database: "keb"}
}

// content returns every file below a folder except the configuration of NATS, whose hashes have random salts.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "nats.conf" {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[name] = string(text)
		return err
	})
	require.NoError(t, err)
	return files
}

func TestInit_EmptyFolder_SecretsMatch(t *testing.T) {
	t.Parallel()
	cfg := config(t, "avs", "broker")
	require.NoError(t, Init(cfg))
	files := content(t, cfg.Dir)
	opts, err := server.ProcessConfigFile(filepath.Join(cfg.Dir, "nats", "nats.conf"))
	require.NoError(t, err)
	if len(opts.Users) != 5 {
		t.Errorf("the server has %d users, want broker, monitor, orchestrator, signal and worker-avs", len(opts.Users))
	}
	passwords := map[string]string{
		"monitor": "cli/nats-password", "signal": "cli/nats-signal-password", "broker": "broker/nats-password",
		"orchestrator": "orchestrator/nats-password", "worker-avs": "worker-avs/nats-password",
	}
	for _, u := range opts.Users {
		if err := bcrypt.CompareHashAndPassword([]byte(u.Password), []byte(files[passwords[u.Username]])); err != nil {
			t.Errorf("user %s cannot log on: %v", u.Username, err)
		}
	}
	for _, name := range []string{"broker/seal-keys", "worker-avs/stage-keys", "orchestrator/session-key", "orchestrator/webhook-keys"} {
		if _, err := seal.ParseKeyring(files[name]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if want := "postgres://broker:" + files["postgres/broker-password"] + "@postgres:5432/keb?sslmode=disable"; files["broker/database-url"] != want {
		t.Error("the broker does not log on to Postgres with its own password")
	}
	if files["broker/osb-password"] != files["cli/osb-password"] || files["broker/osb-password"] == files["postgres/postgres-password"] {
		t.Error("passwords are not shared by exactly the services that need them")
	}
	var tokens []struct{ Name, Role, SHA256 string }
	if err := yaml.Unmarshal([]byte(files["orchestrator/access-tokens.yaml"]), &tokens); err != nil || len(tokens) != 2 {
		t.Errorf("access tokens: %v, %v", tokens, err)
	}
	for _, secret := range []string{files["cli/operator-token"], files["cli/viewer-token"]} {
		if strings.Contains(files["orchestrator/access-tokens.yaml"], secret) {
			t.Error("the orchestrator has a token in clear text")
		}
	}
}

func TestInit_SecondRun_KeepsSecrets(t *testing.T) {
	t.Parallel()
	cfg := config(t, "avs")
	require.NoError(t, Init(cfg))
	before := content(t, cfg.Dir)
	for path, want := range map[string]fs.FileMode{KeptIn: fs.ModeDir | 0o700, KeptIn + "/osb": 0o400, "broker": fs.ModeDir | 0o755, "broker/osb-password": 0o444} {
		info, err := os.Stat(filepath.Join(cfg.Dir, path))
		require.NoError(t, err)
		if info.Mode() != want {
			t.Errorf("%s has the mode %s, want %s", path, info.Mode(), want)
		}
	}
	cfg.Workers = append(cfg.Workers, "hello-world")
	// Older versions created the folder with this mode.
	require.NoError(t, os.Chmod(filepath.Join(cfg.Dir, KeptIn), 0o755))
	require.NoError(t, Init(cfg))
	if info, err := os.Stat(filepath.Join(cfg.Dir, KeptIn)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("an old folder has the mode %s, %v", info.Mode(), err)
	}
	after := content(t, cfg.Dir)
	for _, added := range []string{"worker-hello-world/nats-password", "worker-hello-world/stage-keys", "init/nats-worker-hello-world"} {
		if after[added] == "" {
			t.Errorf("the new worker has no %s", added)
		}
		delete(after, added)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("a second run has changed files (-want +got):\n%s", diff)
	}
}

func TestInit_EmptySecret_IsRejected(t *testing.T) {
	t.Parallel()
	cfg := config(t, "avs")
	require.NoError(t, Init(cfg))
	path := filepath.Join(cfg.Dir, KeptIn, "osb")
	require.NoError(t, os.Chmod(path, 0o600))
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	if err := Init(cfg); err == nil || !strings.Contains(err.Error(), "osb is empty") {
		t.Errorf("error is %v, want one that names the file", err)
	}
}
