package up

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSealKeysAreMadeOnceAndForTheOwnerOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := sealKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
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

func TestDamagedSealKeysAreNotReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "keys")
	if err := os.WriteFile(path, []byte("k1:c2hvcnQ="), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := sealKeys(dir)
	if err == nil || !strings.Contains(err.Error(), path+" are damaged") || strings.Contains(err.Error(), "c2hvcnQ=") {
		t.Errorf("error %v, want one that names the file and not its content", err)
	}
}

func TestALargeLogIsPutAside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "keb.log")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, maxLog+1); err != nil {
		t.Fatal(err)
	}
	file, err := openLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	newLog(file, nil, false).Info("new")
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil || !bytes.HasPrefix(content, []byte("{")) || bytes.Contains(content, []byte("old")) {
		t.Errorf("log %q, %v", content, err)
	}
	if info, err := os.Stat(path + ".1"); err != nil || info.Size() <= maxLog {
		t.Errorf("the old log is gone: %v", err)
	}
}

func TestNATSTakesAnotherPortWhenItsOwnIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:4222")
	if err == nil {
		t.Cleanup(func() { _ = taken.Close() })
	} // else another program has it, which is as good
	srv, err := startNATS(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer stopNATS(srv)
	if url := srv.ClientURL(); strings.HasSuffix(url, ":4222") || !strings.HasPrefix(url, "nats://127.0.0.1:") {
		t.Errorf("listens on %s", url)
	}
	if !srv.JetStreamEnabled() {
		t.Error("JetStream is off")
	}
}

func TestNATSThatCannotStartSaysSoAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nats"), []byte("not a folder"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := startNATS(dir, slog.New(slog.DiscardHandler))
	if err == nil || !strings.HasPrefix(err.Error(), "NATS cannot start: ") || strings.Contains(err.Error(), "\n") ||
		!strings.Contains(err.Error(), filepath.Join(dir, "nats")) {
		t.Errorf("error %v, want one line that names the folder", err)
	}
}

func validConfig(t *testing.T) Config {
	t.Helper()
	return Config{
		OSBAddr: "127.0.0.1:0", OperatorAddr: "127.0.0.1:0", LandscapeAddr: "[::1]:0", DataDir: t.TempDir(), User: "u", Password: "p",
	}
}

func TestLoopbackAddressesAreValid(t *testing.T) {
	t.Parallel()
	cfg := validConfig(t)
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	cfg.OSBAddr = "localhost:8080"
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}

func TestAMaintenancePolicyThatCannotBeReadIsNamedBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	cfg := validConfig(t)
	cfg.MaintenancePolicy = filepath.Join(t.TempDir(), "policy.json")
	if err := os.WriteFile(cfg.MaintenancePolicy, []byte(`{"rules": [{"match": {"plan": "azure"}, "days": ["Monday"]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	err := cfg.Validate()
	want := "--maintenance-policy (KEB_MAINTENANCE_POLICY): " + cfg.MaintenancePolicy + `: rules[0].days: "Monday" is no day`
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %q...", err, want)
	}
}

func TestADataFolderBelongsToOneProcess(t *testing.T) {
	t.Parallel()
	cfg := validConfig(t)
	release, err := service.LockDir(cfg.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	err = Run(t.Context(), cfg, &bytes.Buffer{}, &bytes.Buffer{})
	want := "data folder " + cfg.DataDir + " is in use by process "
	if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), "(--data-dir, KEB_DATA_DIR)") {
		t.Errorf("error %v, want %q...", err, want)
	}
}

func TestADatabaseThatCannotBeUsedIsNamedWithoutItsPassword(t *testing.T) {
	t.Parallel()
	cfg := validConfig(t)
	cfg.LandscapeAddr = "127.0.0.1:0"
	cfg.DatabaseURL = "postgres://keb:canary@127.0.0.1:1/keb?sslmode=nonsense"
	err := Run(t.Context(), cfg, &bytes.Buffer{}, &bytes.Buffer{})
	if err == nil || !strings.HasPrefix(err.Error(), "the Postgres of KEB_DATABASE_URL cannot be used: ") ||
		strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
}
