package up

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSealKeys_FirstStart_AreCreatedForOwnerOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := sealKeys(dir)
	require.NoError(t, err)
	if _, err := seal.ParseKeyring(first); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(filepath.Join(dir, "keys"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	again, err := sealKeys(dir)
	if err != nil || again != first {
		t.Errorf("the second start has other keys (%v)", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%d files are left, %v; want the keys only", len(entries), err)
	}
}

func TestSealKeys_Damaged_AreNotReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "keys")
	require.NoError(t, os.WriteFile(path, []byte("k1:c2hvcnQ="), 0o600))
	_, err := sealKeys(dir)
	if err == nil || !strings.Contains(err.Error(), path+" are damaged") || strings.Contains(err.Error(), "c2hvcnQ=") {
		t.Errorf("error %v, want the file's name without its content", err)
	}
}

func TestLog_TooLarge_IsRotatedAtStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "keb.log")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	require.NoError(t, os.Truncate(path, maxLog+1))
	file, err := openLog(dir)
	require.NoError(t, err)
	log, err := newLog(file, nil, false, service.LogConfig{})
	require.NoError(t, err)
	log.Info("new")
	require.NoError(t, file.Close())
	content, err := os.ReadFile(path)
	if err != nil || !bytes.HasPrefix(content, []byte("{")) || bytes.Contains(content, []byte("old")) {
		t.Errorf("log %q, %v", content, err)
	}
	if info, err := os.Stat(path + ".1"); err != nil || info.Size() <= maxLog {
		t.Errorf("the old log is gone: %v", err)
	}
}

func TestNATS_TakenPort_NamesItsFlag(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	addr := taken.Addr().String()
	_, err = startNATS(t.TempDir(), addr, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), addr) || !strings.HasSuffix(err.Error(), ": --nats-addr (KEB_NATS_URL)") {
		t.Errorf("error %v, want one that names %s and the flag", err, addr)
	}
}

func TestNATS_PortZero_TakesAFreePort(t *testing.T) {
	t.Parallel()
	srv, err := startNATS(t.TempDir(), "127.0.0.1:0", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer stopNATS(srv)
	if url := srv.ClientURL(); strings.HasSuffix(url, ":0") || !strings.HasPrefix(url, "nats://127.0.0.1:") {
		t.Errorf("listens on %s", url)
	}
	if !srv.JetStreamEnabled() {
		t.Error("JetStream is off")
	}
}

func TestNATS_StartFails_ReturnsReason(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nats"), []byte("not a folder"), 0o600))
	_, err := startNATS(dir, "127.0.0.1:0", slog.New(slog.DiscardHandler))
	if err == nil || !strings.HasPrefix(err.Error(), "NATS cannot start: ") || strings.Contains(err.Error(), "\n") ||
		!strings.Contains(err.Error(), filepath.Join(dir, "nats")) {
		t.Errorf("error %v, want one line that names the folder", err)
	}
}

func validConfig(t *testing.T) Config {
	t.Helper()
	return Config{
		DataDir: t.TempDir(), Program: "keb",
		Environment: map[string]string{
			"KEB_OSB_ADDR": "127.0.0.1:0", "KEB_OPERATOR_ADDR": "127.0.0.1:0", "KEB_LANDSCAPE_ADDR": "[::1]:0",
			"KEB_NATS_URL": "nats://127.0.0.1:0", "KEB_OSB_USER": "u", "KEB_OSB_PASSWORD": "p",
		},
	}
}

func TestConfig_LoopbackAddresses_AreValid(t *testing.T) {
	t.Parallel()
	cfg := validConfig(t)
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	cfg.Environment["KEB_OSB_ADDR"] = "localhost:8080"
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}

func TestRun_InvalidMaintenancePolicy_FailsBeforeStart(t *testing.T) {
	t.Parallel()
	cfg := validConfig(t)
	policy := filepath.Join(t.TempDir(), "policy.json")
	require.NoError(t, os.WriteFile(policy, []byte(`{"rules": [{"match": {"plan": "azure"}, "days": ["Monday"]}]}`), 0o600))
	cfg.Environment["KEB_MAINTENANCE_POLICY"] = policy
	err := cfg.Validate()
	want := "KEB_MAINTENANCE_POLICY: " + policy + `: rules[0].days: "Monday" is not a day`
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %q...", err, want)
	}
}

func TestRun_DataFolderInUse_Fails(t *testing.T) {
	t.Parallel()
	cfg := validConfig(t)
	release, err := service.LockDir(cfg.DataDir)
	require.NoError(t, err)
	defer release()
	err = Run(t.Context(), cfg, &bytes.Buffer{}, &bytes.Buffer{})
	want := "data folder " + cfg.DataDir + " is in use by process "
	if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), "(--data-dir, KEB_DATA_DIR)") {
		t.Errorf("error %v, want %q...", err, want)
	}
}

func TestRun_InvalidDatabase_ErrorHidesPassword(t *testing.T) {
	t.Parallel()
	cfg := validConfig(t)
	cfg.Environment["KEB_LANDSCAPE_ADDR"] = "127.0.0.1:0"
	cfg.Environment["KEB_DATABASE_URL"] = "postgres://keb:canary@127.0.0.1:1/keb?sslmode=nonsense"
	err := Run(t.Context(), cfg, &bytes.Buffer{}, &bytes.Buffer{})
	if err == nil || !strings.HasPrefix(err.Error(), "the Postgres of KEB_DATABASE_URL cannot be used: ") ||
		strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
}
