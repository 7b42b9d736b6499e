// Package secrets runs every service as a separate process with unique secrets, and searches for them everywhere: make
// secrets.
package secrets

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/landscape"
	"github.com/kyma-project/keb/libs/access/accesstest"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pglocal"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

const (
	// root is the folder of the repository.
	root = "../.."
	// limit is the time limit for one condition on a busy machine.
	limit = 10 * time.Minute
	// startLimit is the time limit for the start of a process.
	startLimit = 3 * time.Minute
)

// world is an installation as docker-compose.yml describes it, in processes of this machine.
type world struct {
	t   *testing.T
	dir string // of everything that the installation writes
	// secrets is what keb secrets init has made.
	secrets  harness.Secrets
	canaries *vault
	echo     *echo
	issuer   *accesstest.Issuer
	postgres *pglocal.Server
	database string // address, as the superuser
	nats     *server.Server
	recorder *recorder
	traces   *harness.Traces
	services map[string]harness.Service // from docker-compose.yml
	running  map[string]*process
	// more is the additional environment of replicas; brokers are the addresses of the OSB API.
	more    map[string]map[string]string
	brokers []string
	all     []*process
	// OSB and operator are addresses of the first broker and the first orchestrator.
	osb, operator string
	*harness.System
}

// process is a service that runs or ran.
type process struct {
	*harness.Process
	service string
	args    []byte // as other processes see them
	metrics string // address
}

// vault contains the canaries, and the values that the systems create during the test.
type vault struct {
	mu sync.Mutex
	harness.Canaries
}

func (v *vault) set(f func(c harness.Canaries)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f(v.Canaries)
}

// snapshot returns the current canaries.
func (v *vault) snapshot() harness.Canaries {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.Canaries)
}

// credential returns a new secret of a system.
func (v *vault) credential(name string) string {
	c := harness.NewCanary()
	v.set(func(all harness.Canaries) { all.AddCanary(name, c) })
	return c.String()
}

// newWorld makes everything but the services. Without overlays there is no Kyma 1, and none of its workers.
func newWorld(t *testing.T, overlays string) *world {
	t.Helper()
	w := &world{
		t: t, dir: filepath.Join(t.TempDir(), "data"), canaries: &vault{Canaries: harness.Canaries{}},
		running: map[string]*process{}, more: map[string]map[string]string{}, osb: testkit.Addr(t), operator: testkit.Addr(t), traces: harness.CollectTraces(t),
	}
	w.brokers = []string{w.osb, testkit.Addr(t)}
	for _, dir := range []string{"nats", "postgres"} {
		require.NoError(t, os.MkdirAll(filepath.Join(w.dir, dir), 0o711))
	}
	w.secrets = harness.MakeSecrets(t, filepath.Join(t.TempDir(), "secrets"), "--database-host", "HOST:PORT", "--database", "keb")
	w.noteFiles()
	w.startPostgres()
	w.startNATS()
	w.startSystems()
	var profiles []string
	if overlays != "" {
		profiles = []string{"kyma-1"}
	}
	w.services = harness.Compose(t, root, harness.Composition{Profiles: profiles, Values: map[string]string{
		"KEB_PACE": "50ms", "KEB_LOG_LEVEL": "debug", "OTEL_EXPORTER_OTLP_ENDPOINT": w.traces.URL(), "KEB_OVERLAYS": overlays, "KEB_OSB_RETRY_AFTER": "1s",
	}})
	delete(w.services, "landscape") // the echo stands before its own
	w.System = harness.Connect(t, harness.Remote{
		OSBAddr: w.osb, OperatorAddr: w.operator, LandscapeAddr: w.echo.addr(),
		Password: w.secrets.Read("cli/osb-password"), Token: w.secrets.Read("cli/operator-token"),
	})
	w.DataDir = w.dir
	return w
}

// noteFiles makes canaries of all passwords and keys of the installation.
func (w *world) noteFiles() {
	w.t.Helper()
	files, err := os.ReadDir(filepath.Join(w.secrets.Dir, "init"))
	if err != nil || len(files) < 20 {
		w.t.Fatalf("%d secrets were created: %v", len(files), err)
	}
	w.canaries.set(func(c harness.Canaries) {
		for _, file := range files {
			noteSecret(c, file.Name(), w.secrets.Read(filepath.Join("init", file.Name())))
		}
	})
}

// noteSecret adds a password, or the keys of a keyring with their bytes, to the canaries.
func noteSecret(c harness.Canaries, name, text string) {
	if _, key, isKeyring := strings.Cut(text, ":"); isKeyring {
		c.Add(name, key)
		if raw, err := base64.StdEncoding.DecodeString(key); err == nil {
			c.Add(name+" (bytes)", string(raw))
		}
		return
	}
	c.Add(name, strings.TrimPrefix(text, "k"))
}

func (w *world) startPostgres() {
	w.t.Helper()
	// Log as much as a server can, and write pages with checksums.
	srv, err := pglocal.Start(w.t.Context(), pglocal.Config{DataDir: filepath.Join(w.dir, "postgres"), Settings: map[string]string{
		"log_connections": "on", "wal_level": "logical", "full_page_writes": "on", "log_parameter_max_length": "-1",
		"log_parameter_max_length_on_error": "-1", "max_connections": "120",
	}})
	require.NoError(w.t, err)
	w.postgres = srv
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startLimit)
		defer cancel()
		if err := srv.Stop(ctx); err != nil {
			w.t.Error(err)
		}
	})
	require.NoError(w.t, srv.EnsureDatabase(w.t.Context(), "keb"))
	w.database = srv.URL("keb")
	admin, err := url.Parse(w.database)
	require.NoError(w.t, err)
	if password, ok := admin.User.Password(); ok {
		w.canaries.set(func(c harness.Canaries) { c.AddWhole("password of the superuser of Postgres", password) })
	}
	db, err := postgres.Open(w.t.Context(), postgres.Config{URL: w.database, MaxOpen: 1})
	require.NoError(w.t, err)
	w.secrets.MakeUsers(db)
	for _, user := range []string{"broker", "orchestrator"} {
		path := filepath.Join(w.secrets.Dir, user, "database-url")
		address := strings.ReplaceAll(w.secrets.Read(user+"/database-url"), "HOST:PORT", admin.Host)
		require.NoError(w.t, os.Chmod(path, 0o600))
		require.NoError(w.t, os.WriteFile(path, []byte(address), 0o600))
	}
	// From now on every statement is logged with its parameters.
	for _, statement := range []string{"ALTER SYSTEM SET log_statement = 'all'", "SELECT pg_reload_conf()"} {
		_, err := db.Exec(statement)
		require.NoError(w.t, err)
	}
	require.NoError(w.t, postgres.Close(db))
}

func (w *world) startNATS() {
	w.t.Helper()
	// The recorder reads all messages in every account.
	password := harness.NewCanary().String()
	readers := []*server.User{{Username: "recorder", Password: password}}
	w.nats = harness.NATS(w.t, w.secrets.Path("nats", "nats.conf"), func(opts *server.Options) {
		opts.HTTPHost, opts.HTTPPort = "127.0.0.1", server.RANDOM_PORT
		opts.StoreDir, opts.NoLog, opts.Debug, opts.LogFile = filepath.Join(w.dir, "nats"), false, true, filepath.Join(w.dir, "nats.log")
		for _, account := range opts.Accounts {
			readers = append(readers, &server.User{Username: "recorder-" + account.Name, Password: password, Account: account})
		}
		opts.Users = append(opts.Users, readers...)
	})
	w.recorder = &recorder{}
	for _, user := range readers {
		conn, err := nats.Connect(w.nats.ClientURL(), nats.UserInfo(user.Username, password), nats.Timeout(startLimit))
		require.NoErrorf(w.t, err, "%s", user.Username)
		w.t.Cleanup(conn.Close)
		sub, err := conn.Subscribe(">", w.recorder.take)
		require.NoError(w.t, err)
		require.NoError(w.t, sub.SetPendingLimits(-1, -1))
		require.NoError(w.t, conn.Flush())
	}
}

// recorder keeps all messages of the bus.
type recorder struct {
	mu       sync.Mutex
	messages []*nats.Msg
}

func (r *recorder) take(m *nats.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, m)
}

// startSystems starts the simulated systems, each with a unique secret, and the proxy in front of them.
func (w *world) startSystems() {
	w.t.Helper()
	listener, err := net.Listen("tcp", testkit.Addr(w.t))
	require.NoError(w.t, err)
	secret := w.canaries.credential
	cfg := landscape.Config{
		DataDir: filepath.Join(w.t.TempDir(), "landscape"), ExternalURL: "http://" + listener.Addr().String(), CleanTime: time.Second,
		AvSClientID: "avs-client", AvSUsername: "avs-user", AvSPassword: secret("password of AvS"), EDPSecret: secret("secret of EDP"),
		IASUsername: "ias-user", IASPassword: secret("password of IAS"), DirectorClientID: "director-client", DirectorSecret: secret("secret of the Director"),
		LMSToken: secret("token of LMS"), AzureClientID: "azure-client", AzureSecret: secret("secret of Azure"), KubernetesToken: w.token("token of Kubernetes"),
	}
	l, err := landscape.New(cfg, landscape.Deps{})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	w.echo = newEcho(l.Handler(), w.canaries)
	w.echo.journals = cfg.DataDir
	w.echo.credentials = cfg
	w.echo.server = &httptest.Server{Listener: listener, Config: &http.Server{Handler: w.echo, ReadHeaderTimeout: time.Minute}}
	w.echo.server.Start()
	w.t.Cleanup(func() {
		w.echo.server.CloseClientConnections()
		w.echo.server.Close()
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
		if err := l.Close(); err != nil {
			w.t.Error(err)
		}
	})
	w.issuer = accesstest.NewIssuer(w.t, time.Now)
	w.issuer.User(map[string]any{"sub": "jane", "groups": []string{"admins"}})
	w.issuer.Redirect("http://" + w.operator + "/console/login/oidc/callback")
	w.canaries.set(func(c harness.Canaries) { c.AddWhole("client secret of OIDC", accesstest.Secret) })
}

// token returns a new secret that is valid in a header.
func (w *world) token(name string) string {
	text := strings.Trim(base64.RawURLEncoding.EncodeToString([]byte(harness.NewCanary().String())), "-_")
	w.canaries.set(func(c harness.Canaries) { c.Add(name, text) })
	return text
}

// credentials returns the external systems' credentials of a worker: some in the environment, some in files.
func (w *world) credentials(service string) map[string]string {
	c := w.echo.credentials
	own := map[string]map[string]string{
		"worker-avs":               {"KEB_AVS_CLIENT_ID": c.AvSClientID, "KEB_AVS_USERNAME": c.AvSUsername, "KEB_AVS_PASSWORD_FILE": c.AvSPassword},
		"worker-edp":               {"KEB_EDP_SECRET": c.EDPSecret},
		"worker-ias":               {"KEB_IAS_USERNAME": c.IASUsername, "KEB_IAS_PASSWORD_FILE": c.IASPassword},
		"worker-provisioner":       {"KEB_GARDENER_TOKEN_FILE": c.KubernetesToken},
		"worker-lms":               {"KEB_LMS_TOKEN_FILE": c.LMSToken},
		"worker-event-hubs":        {"KEB_AZURE_CLIENT_ID": c.AzureClientID, "KEB_AZURE_CLIENT_SECRET": c.AzureSecret},
		"worker-hyperscaler":       {"KEB_GARDENER_TOKEN_FILE": c.KubernetesToken},
		"worker-kyma":              {"KEB_KCP_TOKEN": c.KubernetesToken},
		"worker-lifecycle-manager": {"KEB_KCP_TOKEN_FILE": c.KubernetesToken},
		"worker-service-manager":   {"KEB_SERVICE_MANAGER_OVERRIDE_MODE": "Always", "KEB_SERVICE_MANAGER_URL": "https://sm.example.com", "KEB_SERVICE_MANAGER_USERNAME": "sm-user", "KEB_SERVICE_MANAGER_PASSWORD": w.serviceManagerPassword()},
	}[service]
	env := map[string]string{}
	for name, value := range own {
		if strings.HasSuffix(name, "_FILE") {
			path := filepath.Join(w.secrets.Dir, service, strings.ToLower(name))
			require.NoError(w.t, os.WriteFile(path, []byte(value), 0o600))
			value = path
		}
		env[name] = value
	}
	return env
}

func (w *world) serviceManagerPassword() string {
	path := filepath.Join(w.secrets.Dir, "worker-service-manager", "own-password")
	if _, err := os.Stat(path); err != nil {
		require.NoError(w.t, os.WriteFile(path, []byte(w.canaries.credential("password of Service Manager")), 0o600))
	}
	return w.secrets.Read("worker-service-manager/own-password")
}

// start starts a replica of a service, "broker" or "broker/2". The variables in more take precedence.
func (w *world) start(replica string, more map[string]string) *process {
	w.t.Helper()
	service, number, _ := strings.Cut(replica, "/")
	env := map[string]string{}
	metrics := testkit.Addr(w.t)
	env["KEB_METRICS_ADDR"], env["GOTRACEBACK"] = metrics, "crash"
	maps.Copy(env, w.credentials(service))
	switch service {
	case "broker":
		env["KEB_OSB_ADDR"] = w.osb
		env["KEB_BROKER_PUBLIC_URL"], env["KEB_BROKER_RESEAL_EVERY"] = "http://"+w.osb, "500ms"
		env["KEB_PLAN_CHANGES"] = ""
		if number != "" {
			env["KEB_OSB_ADDR"] = testkit.Addr(w.t)
		}
	case "orchestrator":
		env["KEB_OPERATOR_ADDR"], env["KEB_OPERATOR_PUBLIC_URL"] = w.operator, "http://"+w.operator
		maps.Copy(env, map[string]string{
			"KEB_ACCESS_OIDC_ISSUER": w.issuer.URL(), "KEB_ACCESS_OIDC_AUDIENCE": accesstest.Client, "KEB_ACCESS_OIDC_CLIENT_SECRET": accesstest.Secret,
			"KEB_ACCESS_OIDC_OPERATORS": "admins",
		})
		if number != "" {
			env["KEB_OPERATOR_ADDR"] = testkit.Addr(w.t)
		}
	}
	maps.Copy(env, more)
	s := w.services[service]
	list := s.Env(strings.NewReplacer("nats://nats:4222", w.nats.ClientURL(), "http://landscape:8090", "http://"+w.echo.addr(), "/run/keb/", w.secrets.Path(service, "")+"/"), env)
	p := &process{Process: harness.Spawn(w.t, s.Program(w.t, root), list, s.Command...), service: service, metrics: metrics}
	w.running[replica], w.all = p, append(w.all, p)
	return p
}

// ready waits until processes say that they are.
func (w *world) ready(processes ...*process) {
	w.t.Helper()
	for _, p := range processes {
		testkit.Eventually(w.t, startLimit, p.service+" to be ready", func() bool {
			if p.Ended() {
				w.t.Fatalf("%s has ended:\n%s", p.service, p.Output())
			}
			response, err := http.Get("http://" + p.metrics + "/readyz")
			return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
		})
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID()))
		if err != nil {
			w.t.Error(err)
		}
		p.args = args
	}
}

// startAll starts one replica of each service.
func (w *world) startAll() {
	w.t.Helper()
	var started []*process
	for _, service := range slices.Sorted(maps.Keys(w.services)) {
		started = append(started, w.start(service, nil))
	}
	w.ready(started...)
}

// logs returns the output of all processes.
func (w *world) logs() map[string][]byte {
	out := map[string][]byte{}
	for i, p := range w.all {
		out[fmt.Sprintf("log of %s (%d)", p.service, i)] = []byte(p.Output())
		out[fmt.Sprintf("arguments of %s (%d)", p.service, i)] = p.args
	}
	return out
}

// dump returns all rows of the database by SQL, and the output of pg_dump.
func (w *world) dump() map[string][]byte {
	w.t.Helper()
	out := map[string][]byte{}
	db, err := postgres.Open(w.t.Context(), postgres.Config{URL: w.database, MaxOpen: 1})
	require.NoError(w.t, err)
	defer func() { _ = postgres.Close(db) }()
	var tables []string
	if err := db.Select(&tables, `SELECT quote_ident(table_schema) || '.' || quote_ident(table_name) FROM information_schema.tables
		WHERE table_schema IN ('broker', 'orchestrator') AND table_type = 'BASE TABLE'`); err != nil {
		w.t.Fatal(err)
	}
	if len(tables) < 10 {
		w.t.Fatalf("only the tables %v", tables)
	}
	for _, table := range tables {
		var rows []string
		require.NoError(w.t, db.Select(&rows, `SELECT t::text FROM `+table+` t`))
		out["rows of "+table] = []byte(strings.Join(rows, "\n"))
	}
	if program, err := exec.LookPath("pg_dump"); err == nil {
		var dump, problems bytes.Buffer
		cmd := exec.CommandContext(w.t.Context(), program, "--dbname", w.database)
		cmd.Stdout, cmd.Stderr = &dump, &problems
		if err := cmd.Run(); err == nil {
			out["pg_dump"] = dump.Bytes()
		} else {
			w.t.Logf("pg_dump cannot read this server, its rows are read by SQL only: %s", problems.String())
		}
	}
	return out
}
