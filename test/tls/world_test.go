// Package tls runs the whole system with TLS on every connection and a certificate for each process: "make e2e SUITE=tls".
package tls

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/tlsfiles"
	"github.com/kyma-project/keb/test/internal/harness"
)

const (
	root  = "../.."
	limit = 2 * time.Minute
)

// world is docker-compose.yml with docker-compose.tls.yml, as processes with certificates of "keb secrets init --tls".
type world struct {
	t       *testing.T
	secrets harness.Secrets
	nats    *server.Server
	// databaseURL is that of the superuser.
	databaseURL   string
	osb, operator string            // addresses
	metrics       map[string]string // addresses of those whose metrics the test reads
}

// client are the files of a service as a client.
func (w *world) client(service string) tlsfiles.Client {
	return tlsfiles.Client{CAFile: w.secrets.Path(service, "ca.crt"), CertFile: w.secrets.Path(service, "tls.crt"), KeyFile: w.secrets.Path(service, "tls.key")}
}

// makeSecrets makes what is missing, and renews what ends soon.
func (w *world) makeSecrets(databaseAddr string) {
	w.t.Helper()
	w.secrets = harness.MakeSecrets(w.t, w.secrets.Dir, "--tls", "--database-host", databaseAddr)
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, secrets: harness.Secrets{Dir: t.TempDir()}, metrics: map[string]string{}}
	w.makeSecrets("127.0.0.1:1")
	w.database()
	w.bus()
	simulated := testkit.Addr(t)
	w.osb, w.operator = testkit.Addr(t), testkit.Addr(t)
	processes := map[string]*harness.Process{}
	for name, s := range harness.Compose(t, root, harness.Composition{Override: "docker-compose.tls.yml", Values: map[string]string{
		"KEB_PACE": "50ms", "KEB_OSB_RETRY_AFTER": "1s", "KEB_TLS_CLIENT_CA_FILE": "/run/keb/ca.crt",
	}}) {
		own := map[string]string{}
		switch name {
		case "landscape":
			own["KEB_LANDSCAPE_ADDR"], own["KEB_LANDSCAPE_DATA_DIR"], own["KEB_LANDSCAPE_CLUSTER_TIME"] = simulated, t.TempDir(), "100ms"
		case "broker":
			own["KEB_OSB_ADDR"] = w.osb
		case "orchestrator":
			own["KEB_OPERATOR_ADDR"] = w.operator
		}
		if name != "landscape" {
			w.metrics[name] = testkit.Addr(t)
			own["KEB_METRICS_ADDR"] = w.metrics[name]
			maps.Copy(own, w.files("KEB_METRICS_TLS_CLIENT_", "KEB_METRICS_TLS_", name))
		}
		replace := strings.NewReplacer("tls://nats:4222", w.nats.ClientURL(), "landscape:8090", simulated, "/run/keb/", w.secrets.Path(name, "")+"/")
		processes[name] = harness.Spawn(t, s.Program(t, root), s.Env(replace, own), s.Command...)
	}
	for name, addr := range w.metrics {
		testkit.Eventually(t, limit, name+" is ready", func() bool {
			if p := processes[name]; p.Ended() {
				t.Fatalf("%s ended: %s", name, p.Output())
			}
			code, _, err := w.ask("cli", "https://"+addr+"/readyz")
			return err == nil && code == http.StatusOK
		})
	}
	return w
}

// files are the variables of a service's certificate, and of the authority, whose variable has another prefix at a server.
func (w *world) files(authority, prefix, service string) map[string]string {
	return map[string]string{
		authority + "CA_FILE": w.secrets.Path(service, "ca.crt"), prefix + "CERT_FILE": w.secrets.Path(service, "tls.crt"), prefix + "KEY_FILE": w.secrets.Path(service, "tls.key"),
	}
}

// database is a Postgres that demands certificates, with the users of the installation.
func (w *world) database() {
	w.t.Helper()
	w.databaseURL = pgtest.ServerTLS(w.t, testkit.KeyPair{CertFile: w.secrets.Path("postgres", "tls.crt"), KeyFile: w.secrets.Path("postgres", "tls.key")},
		&testkit.CA{File: w.secrets.Path("postgres", "ca.crt")})
	u, err := url.Parse(w.databaseURL)
	require.NoError(w.t, err)
	// Now the address is known that the services get.
	w.makeSecrets(u.Host)
	db, err := postgres.Open(w.t.Context(), postgres.Config{URL: w.databaseURL, TLS: w.client("broker"), MaxOpen: 1})
	require.NoError(w.t, err)
	defer func() { _ = postgres.Close(db) }()
	_, err = db.ExecContext(w.t.Context(), "CREATE DATABASE keb")
	require.NoError(w.t, err)
	w.secrets.MakeUsers(db)
}

// bus is a NATS with the configuration of the installation.
func (w *world) bus() {
	w.t.Helper()
	here := filepath.Join(w.t.TempDir(), "nats.conf")
	require.NoError(w.t, os.WriteFile(here, []byte(strings.ReplaceAll(w.secrets.Read("nats/nats.conf"), "/run/keb/", w.secrets.Path("nats", "")+"/")), 0o600))
	w.nats = harness.NATS(w.t, here, nil)
}

// ask asks with the files of a service, and without a certificate if there is none.
func (w *world) ask(as, url string) (int, string, error) {
	w.t.Helper()
	files := tlsfiles.Client{CAFile: w.secrets.Path("cli", "ca.crt")}
	if as != "" {
		files = w.client(as)
	}
	transport, err := files.Transport("KEB_")
	require.NoError(w.t, err)
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, url, nil)
	require.NoError(w.t, err)
	res, err := (&http.Client{Transport: transport, Timeout: 20 * time.Second}).Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

// cli runs keb as the container cli does.
func (w *world) cli(with bool, args ...string) (string, error) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), harness.Keb(w.t), args...)
	cmd.Env = append(os.Environ(), "KEB_OSB_ADDR="+w.osb, "KEB_OPERATOR_ADDR="+w.operator, "KEB_OSB_PASSWORD_FILE="+w.secrets.Path("cli", "osb-password"),
		"KEB_TOKEN_FILE="+w.secrets.Path("cli", "operator-token"), "KEB_CA_FILE="+w.secrets.Path("cli", "ca.crt"))
	if with {
		for name, value := range w.files("KEB_", "KEB_", "cli") {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}
