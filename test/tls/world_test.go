// Package tls runs the whole system with TLS on every hop, and a certificate of everybody: with "make e2e SUITE=tls".
package tls

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/landscape"
	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/tlsfiles"
	"github.com/kyma-project/keb/libs/worker"
	stepworkers "github.com/kyma-project/keb/services/step-workers"
	"github.com/kyma-project/keb/test/internal/harness"
)

const limit = 2 * time.Minute

// world is an installation with certificates of "keb secrets init --tls".
type world struct {
	t    *testing.T
	dir  string
	keb  string
	nats *server.Server
	// databaseURL is that of the superuser.
	databaseURL                                                        string
	osbAddr, operatorAddr, brokerMetrics, orchestratorMetrics, avsAddr string
	// processes by the name of their folder.
	processes map[string]*harness.Process
}

func (w *world) path(service, name string) string { return filepath.Join(w.dir, service, name) }

func (w *world) read(service, name string) string {
	w.t.Helper()
	content, err := os.ReadFile(w.path(service, name))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(content)
}

// client are the files of a service as a client.
func (w *world) client(service string) tlsfiles.Client {
	return tlsfiles.Client{CAFile: w.path(service, "ca.crt"), CertFile: w.path(service, "tls.crt"), KeyFile: w.path(service, "tls.key")}
}

// secrets makes what is missing, and renews what ends soon.
func (w *world) secrets(databaseAddr string) {
	w.t.Helper()
	if out, err := exec.CommandContext(w.t.Context(), w.keb, "secrets", "init", "--tls", "--dir", w.dir, "--database-host", databaseAddr).CombinedOutput(); err != nil {
		w.t.Fatalf("keb secrets init: %v: %s", err, out)
	}
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), keb: harness.Keb(t), processes: map[string]*harness.Process{}}
	w.secrets("127.0.0.1:1")
	w.database()
	w.bus()
	landscapeURL := w.landscape()
	w.workers(landscapeURL)
	w.osbAddr, w.operatorAddr = free(t), free(t)
	w.brokerMetrics, w.orchestratorMetrics, w.avsAddr = free(t), free(t), free(t)

	services := map[string][]string{
		"broker": {
			"KEB_OSB_ADDR=" + w.osbAddr, "KEB_METRICS_ADDR=" + w.brokerMetrics, "KEB_OSB_USER=keb",
			"KEB_OSB_PASSWORD_FILE=" + w.path("broker", "osb-password"), "KEB_SEAL_KEYS_FILE=" + w.path("broker", "seal-keys"), "KEB_OSB_RETRY_AFTER=1s",
		},
		"orchestrator": {
			"KEB_OPERATOR_ADDR=" + w.operatorAddr, "KEB_METRICS_ADDR=" + w.orchestratorMetrics,
			"KEB_ACCESS_SESSION_KEY_FILE=" + w.path("orchestrator", "session-key"),
		},
		"worker-avs": {
			"KEB_METRICS_ADDR=" + w.avsAddr, "KEB_STAGE_KEYS_FILE=" + w.path("worker-avs", "stage-keys"),
			"KEB_AVS_URL=" + landscapeURL + "/avs/api/v2/evaluationmetadata", "KEB_AVS_TOKEN_URL=" + landscapeURL + "/avs/oauth2/token",
			"KEB_AVS_GROUP_ID=1", "KEB_AVS_PARENT_ID=2",
			"KEB_PROVISIONER_URL=" + landscapeURL + "/provisioner/graphql",
			"KEB_AVS_RETRY_INTERVAL=50ms", "KEB_AVS_CLEAN_UP_INTERVAL=50ms", "KEB_AVS_RUNTIME_INTERVAL=50ms",
		},
	}
	packages := map[string]string{
		"broker": "services/broker/cmd/broker", "orchestrator": "services/orchestrator/cmd/orchestrator", "worker-avs": "services/step-workers/cmd/step-worker",
	}
	for name, env := range services {
		env = append(env, "KEB_NATS_URL="+w.nats.ClientURL(), "KEB_NATS_USER="+name, "KEB_NATS_PASSWORD_FILE="+w.path(name, "nats-password"),
			"KEB_LOG_FORMAT=json")
		env = append(env, w.files("KEB_NATS_", name)...)
		env = append(env, w.serverFiles("KEB_METRICS_TLS_", name)...)
		if name != "worker-avs" {
			env = append(env, w.files("KEB_DATABASE_", name)...)
			env = append(env, w.serverFiles("KEB_TLS_", name)...)
			env = append(env, "KEB_DATABASE_URL_FILE="+w.path(name, "database-url"), "KEB_ACCESS_TOKENS_FILE="+w.path(name, "access-tokens.yaml"))
		}
		var args []string
		if name == "worker-avs" {
			args = []string{"avs"}
		}
		w.processes[name] = harness.Spawn(t, harness.Build(t, packages[name], name), env, args...)
	}
	for service, addr := range map[string]string{"broker": w.brokerMetrics, "orchestrator": w.orchestratorMetrics, "worker-avs": w.avsAddr} {
		testkit.Eventually(t, limit, service+" is ready", func() bool {
			if p := w.processes[service]; p.Ended() {
				t.Fatalf("%s ended: %s", service, p.Output())
			}
			code, _, err := w.ask("cli", "https://"+addr+"/readyz")
			return err == nil && code == http.StatusOK
		})
	}
	return w
}

func (w *world) files(prefix, service string) []string {
	return []string{prefix + "CA_FILE=" + w.path(service, "ca.crt"), prefix + "CERT_FILE=" + w.path(service, "tls.crt"), prefix + "KEY_FILE=" + w.path(service, "tls.key")}
}

func (w *world) serverFiles(prefix, service string) []string {
	return []string{prefix + "CLIENT_CA_FILE=" + w.path(service, "ca.crt"), prefix + "CERT_FILE=" + w.path(service, "tls.crt"), prefix + "KEY_FILE=" + w.path(service, "tls.key")}
}

// database is a Postgres that demands certificates, with the users of the installation.
func (w *world) database() {
	w.t.Helper()
	w.databaseURL = testkit.PostgresTLS(w.t, testkit.KeyPair{CertFile: w.path("postgres", "tls.crt"), KeyFile: w.path("postgres", "tls.key")},
		&testkit.CA{File: w.path("postgres", "ca.crt")})
	u, err := url.Parse(w.databaseURL)
	if err != nil {
		w.t.Fatal(err)
	}
	// Now the address is known that the services get.
	w.secrets(u.Host)
	db, err := postgres.Open(w.t.Context(), postgres.Config{URL: w.databaseURL, TLS: w.client("broker"), MaxOpen: 1})
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = postgres.Close(db) }()
	statements := []string{"CREATE DATABASE keb"}
	for _, user := range []string{"broker", "orchestrator"} {
		statements = append(statements, fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", user, w.read("postgres", user+"-password")),
			"GRANT CONNECT, CREATE, TEMPORARY ON DATABASE keb TO "+user)
	}
	for _, statement := range statements {
		if _, err := db.ExecContext(w.t.Context(), statement); err != nil {
			w.t.Fatal(err)
		}
	}
}

// bus is a NATS with the configuration of the installation.
func (w *world) bus() {
	w.t.Helper()
	here := filepath.Join(w.t.TempDir(), "nats.conf")
	if err := os.WriteFile(here, []byte(strings.ReplaceAll(w.read("nats", "nats.conf"), "/run/keb/", w.path("nats", "")+"/")), 0o600); err != nil {
		w.t.Fatal(err)
	}
	opts, err := server.ProcessConfigFile(here)
	if err != nil {
		w.t.Fatal(err)
	}
	opts.Host, opts.Port, opts.HTTPPort, opts.StoreDir, opts.NoLog, opts.NoSigs = "127.0.0.1", server.RANDOM_PORT, 0, w.t.TempDir(), true, true
	if w.nats, err = server.NewServer(opts); err != nil {
		w.t.Fatal(err)
	}
	w.nats.Start()
	w.t.Cleanup(func() { w.nats.Shutdown(); w.nats.WaitForShutdown() })
	if !w.nats.ReadyForConnections(limit) {
		w.t.Fatal("NATS does not come up")
	}
}

func (w *world) landscape() string {
	w.t.Helper()
	simulated := httptest.NewUnstartedServer(nil)
	external, err := landscape.New(landscape.Config{ExternalURL: "http://" + simulated.Listener.Addr().String()}, landscape.Deps{Log: testkit.Logger(w.t)})
	if err != nil {
		w.t.Fatal(err)
	}
	simulated.Config.Handler = external.Handler()
	simulated.Start()
	w.run("landscape", external.Run)
	w.t.Cleanup(func() { simulated.Close(); _ = external.Close() })
	return simulated.URL
}

// workers run in this process, but avs; each connects as its container does.
func (w *world) workers(landscapeURL string) {
	w.t.Helper()
	services, err := stepworkers.All(landscapeURL, stepworkers.Options{Fast: true})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, sv := range services {
		user := event.WorkerUserName(sv.Name)
		if user == "worker-avs" {
			continue
		}
		b, err := bus.Connect(w.t.Context(), bus.Config{
			URL: w.nats.ClientURL(), Name: user, User: user, Password: w.read(user, "nats-password"), TLS: w.client(user), Guest: true,
		}, bus.Deps{Log: testkit.Logger(w.t)})
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(b.Close)
		keys, err := seal.ParseKeyring(w.read(user, "stage-keys"))
		if err != nil {
			w.t.Fatal(err)
		}
		made, err := worker.New(worker.Config{Name: sv.Name, Version: "1.0.0", Questions: sv.Questions},
			worker.Deps{Bus: b, StageMemory: stagemem.NewGuest(b.JetStream(), keys), Log: testkit.Logger(w.t)}, sv.Steps...)
		if err != nil {
			w.t.Fatal(err)
		}
		w.run(sv.Name, made.Run)
	}
}

// run runs something until the test ends.
func (w *world) run(name string, run func(context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	group := service.NewGroup(testkit.Logger(w.t))
	group.Add(name, run)
	ended := make(chan error, 1)
	go func() { ended <- group.Run(ctx) }()
	w.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			w.t.Errorf("%s: %v", name, err)
		}
	})
}

// ask asks with the files of a service, and without a certificate if there is none.
func (w *world) ask(as, url string) (int, string, error) {
	w.t.Helper()
	files := tlsfiles.Client{CAFile: w.path("cli", "ca.crt")}
	if as != "" {
		files = w.client(as)
	}
	transport, err := files.Transport("KEB_")
	if err != nil {
		w.t.Fatal(err)
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		w.t.Fatal(err)
	}
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
	cmd := exec.CommandContext(w.t.Context(), w.keb, args...)
	cmd.Env = append(os.Environ(), "KEB_OSB_ADDR="+w.osbAddr, "KEB_OPERATOR_ADDR="+w.operatorAddr, "KEB_OSB_PASSWORD_FILE="+w.path("cli", "osb-password"),
		"KEB_TOKEN_FILE="+w.path("cli", "operator-token"), "KEB_CA_FILE="+w.path("cli", "ca.crt"))
	if with {
		cmd.Env = append(cmd.Env, w.files("KEB_", "cli")...)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func free(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	return ln.Addr().String()
}
