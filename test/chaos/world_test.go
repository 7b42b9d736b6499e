//go:build linux

package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/jmoiron/sqlx"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pglocal"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

const (
	root = "../.."
	// replicas is the number of replicas of each broker, orchestrator and worker.
	replicas = 2
	// waitLimit is the time limit for one condition on a busy machine.
	waitLimit = 3 * time.Minute
	natsFull  = "8GB"
	// adminUser has all permissions on the bus, like an administrator of the server.
	adminUser, adminPassword = "chaos", "chaos"
)

// The three dependencies of the services.
const (
	toNATS      = "nats"
	toPostgres  = "postgres"
	toLandscape = "landscape"
)

// world is an installation.
type world struct {
	t        *testing.T
	dir      string
	programs map[string]*program // "broker-0", "nats", "landscape"
	proxies  map[string]*toxiproxy.Proxy
	server   *toxiproxy.ApiServer
	addr     map[string]string // listen addresses

	postgres *pglocal.Server
	pgConfig pglocal.Config
	db       *sqlx.DB // without a proxy, for queries of the test
	admin    *nats.Conn
	js       jetstream.JetStream
	natsConf string
	// full contains the disks that can be filled: "nats", "postgres".
	full map[string]bool

	secrets       harness.Secrets
	sys           *harness.System
	brokers       []string
	orchestrators []string
	password      string
	keb           *program
	// down are the programs that are kept down; exits counts unexpected exits.
	down  map[string]bool
	exits int
	// restless is true if an accepted operation has not ended, so that later phases are meaningless.
	restless bool
}

// newWorld builds and starts everything.
func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "keb-chaos-") //nolint:usetesting // it contains mounts, and is also removed after an interruption
	require.NoError(t, err)
	w := &world{
		t: t, dir: dir, programs: map[string]*program{}, proxies: map[string]*toxiproxy.Proxy{}, addr: map[string]string{}, full: map[string]bool{}, down: map[string]bool{},
		server: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
	}
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxics log through the library's own logger
	t.Cleanup(w.remove)
	w.cleanWhenInterrupted()
	if err := os.Chmod(dir, 0o711); err != nil { // Postgres runs as another user
		t.Fatal(err)
	}
	for _, name := range []string{"nats", "pg", "log"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	for name, size := range map[string]string{"nats": "256m", "pg": "1g"} {
		if err := mount(filepath.Join(dir, name), size); err != nil {
			t.Logf("the disk of %s cannot be filled, so these faults are skipped: %v", name, err)
			continue
		}
		w.full[name] = true
	}
	services := harness.Compose(t, root, harness.Composition{Values: map[string]string{"KEB_PACE": "300ms", "KEB_OSB_RETRY_AFTER": "1s"}})
	delete(services, "landscape") // it has other times
	keb := harness.Keb(t)

	for _, name := range []string{"nats", "nats-http", "landscape", "postgres"} {
		w.addr[name] = testkit.Addr(t)
	}
	w.secrets = harness.MakeSecrets(t, filepath.Join(dir, "secrets"))
	w.password = w.secrets.Read("cli/osb-password")
	w.startPostgres()
	w.secrets.MakeUsers(w.db)
	w.addNATS(harness.Program(t, "github.com/nats-io/nats-server/v2", "nats-server"))
	w.add("landscape", keb, []string{
		"KEB_LANDSCAPE_ADDR=" + w.addr["landscape"], "KEB_LANDSCAPE_DATA_DIR=" + filepath.Join(dir, "landscape"),
		"KEB_LANDSCAPE_EXTERNAL_URL=http://" + w.proxy("worker-0", toLandscape), "KEB_LANDSCAPE_CLUSTER_TIME=1s", "KEB_LANDSCAPE_RECONCILE_TIME=300ms",
		"KEB_LANDSCAPE_BINDINGS=3000",
	}, "landscape")
	w.await("NATS and the landscape", func() bool { return w.listens("nats") && w.listens("landscape") })
	w.connect()
	for _, name := range slices.Sorted(maps.Keys(services)) {
		for i := range replicas {
			w.addService(name, i, services[name])
		}
	}
	w.sys = harness.Connect(t, harness.Remote{
		OSBAddr: w.brokers[0], OperatorAddr: w.orchestrators[0], LandscapeAddr: w.addr["landscape"], Password: w.password, Token: w.secrets.Read("cli/operator-token"),
	})
	w.keb = &program{t: t, name: "keb", path: keb, log: filepath.Join(dir, "log", "keb.log"), env: []string{
		"KEB_OPERATOR_ADDR=" + w.orchestrators[0], "KEB_TOKEN=" + w.secrets.Read("cli/operator-token"), "KEB_OSB_ADDR=" + w.brokers[0],
		"KEB_OSB_USER=keb", "KEB_OSB_PASSWORD=" + w.password, "HOME=" + dir,
	}}
	w.ready()
	// Steps of a simulated landscape take no time; steps of a real one can be interrupted while they wait for an answer.
	for _, system := range []string{"avs", "edp", "provisioner", "director", "reconciler", "control-plane", "gardener", "runtimes"} {
		w.sys.Fault(system, `{"latencyMs": 30}`)
	}
	return w
}

func port(addr string) (n int) {
	_, p, _ := net.SplitHostPort(addr)
	_, _ = fmt.Sscan(p, &n)
	return n
}

func (w *world) startPostgres() {
	w.pgConfig = pglocal.Config{DataDir: filepath.Join(w.dir, "pg", "data"), Port: port(w.addr["postgres"]), Durable: true, Log: slog.New(slog.DiscardHandler)}
	w.restartPostgres()
	require.NoError(w.t, w.postgres.EnsureDatabase(w.t.Context(), "keb"))
	var err error
	w.db, err = postgres.Open(w.t.Context(), postgres.Config{URL: w.postgres.URL("keb"), MaxOpen: 4, ApplicationName: "keb-chaos", StatementTimeout: 5 * time.Second})
	require.NoError(w.t, err)
}

// restartPostgres cleans up after the previous Postgres and starts a new one.
func (w *world) restartPostgres() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), waitLimit)
	defer cancel()
	if w.postgres != nil {
		_ = w.postgres.Stop(ctx) // it was killed
	}
	var err error
	w.postgres, err = pglocal.Start(ctx, w.pgConfig)
	require.NoError(w.t, err, "start Postgres")
}

func (w *world) signalPostgres(s syscall.Signal) {
	for _, pid := range family(w.postgres.PID()) {
		_ = syscall.Kill(pid, s) // some may have exited
	}
}

// addNATS starts the server with the users that are generated for a deployment, and one more for the test.
func (w *world) addNATS(binary string) {
	conf := w.secrets.Read("nats/nats.conf")
	for from, to := range map[string]string{
		`(?m)^listen: .*$`: `listen: "` + w.addr["nats"] + `"`, `(?m)^http: .*$`: `http: "` + w.addr["nats-http"] + `"`,
		`store_dir: /data`:                    `store_dir: "` + filepath.Join(w.dir, "nats") + `"`,
		`(?m)^(\s+)user: "orchestrator"$`:     `${1}user: "` + adminUser + `", password: "` + adminPassword + `"` + "\n    }, {\n" + `${1}user: "orchestrator"`,
		`max_file_store: ` + natsFull:         `max_file_store: ` + natsFull,
		`(?m)^(\s*)jetstream: enabled\s*$`:    `${1}jetstream: enabled`,
		`(?m)^server_name: .*$`:               `server_name: keb`,
		`(?m)^(\s*)max_memory_store: \S+\s*$`: `${1}max_memory_store: 256MB`,
	} {
		pattern := regexp.MustCompile(from)
		if !pattern.MatchString(conf) {
			w.t.Fatalf("the configuration of NATS has no %s", from)
		}
		conf = pattern.ReplaceAllString(conf, to)
	}
	w.natsConf = filepath.Join(w.dir, "nats.conf")
	w.configureNATS(conf)
	w.add(toNATS, binary, nil, "-c", w.natsConf)
}

func (w *world) configureNATS(conf string) {
	require.NoError(w.t, os.WriteFile(w.natsConf, []byte(conf), 0o600))
}

// storeLimit changes the storage limit of the streams, which needs a restart of the server.
func (w *world) storeLimit(size string) {
	raw, err := os.ReadFile(w.natsConf)
	require.NoError(w.t, err)
	w.configureNATS(regexp.MustCompile(`max_file_store: \S+`).ReplaceAllString(string(raw), "max_file_store: "+size))
}

func (w *world) connect() {
	var err error
	w.admin, err = nats.Connect("nats://"+w.addr["nats"], nats.UserInfo(adminUser, adminPassword), nats.MaxReconnects(-1), nats.ReconnectWait(200*time.Millisecond))
	require.NoError(w.t, err)
	w.js, err = jetstream.New(w.admin, jetstream.WithDefaultTimeout(2*time.Second))
	require.NoError(w.t, err)
}

func (w *world) add(name, binary string, env []string, args ...string) *program {
	p := &program{t: w.t, name: name, path: binary, log: filepath.Join(w.dir, "log", name+".log"), env: env, args: args}
	w.programs[name] = p
	p.start()
	return p
}

// addService starts a replica with the environment of docker-compose.yml: only addresses and folders are others, and it is quicker to look again.
func (w *world) addService(name string, replica int, s harness.Service) {
	role := "worker"
	if !strings.HasPrefix(name, "worker-") {
		role = name
	}
	who := fmt.Sprintf("%s-%d", role, replica)
	replace := strings.NewReplacer("landscape:8090", w.proxy(who, toLandscape), "nats:4222", w.proxy(who, toNATS), "/run/keb/", w.secrets.Path(name, "")+"/")
	full := fmt.Sprintf("%s-%d", name, replica)
	w.addr[full] = testkit.Addr(w.t)
	own := map[string]string{"KEB_METRICS_ADDR": w.addr[full]}
	if role != "worker" {
		door := testkit.Addr(w.t)
		own["KEB_DATABASE_URL"] = strings.Replace(w.secrets.Read(name+"/database-url"), "postgres:5432", w.proxy(who, toPostgres), 1)
		delete(s.Environment, "KEB_DATABASE_URL_FILE")
		if role == "broker" {
			own["KEB_OSB_ADDR"], w.brokers = door, append(w.brokers, door)
		} else {
			own["KEB_OPERATOR_ADDR"], w.orchestrators = door, append(w.orchestrators, door)
		}
	}
	w.add(full, s.Program(w.t, root), s.Env(replace, own), s.Command...)
}

// proxy returns the address at which a replica of a role reaches a dependency.
func (w *world) proxy(who, to string) string {
	name := who + " " + to
	p := w.proxies[name]
	if p == nil {
		p = toxiproxy.NewProxy(w.server, name, testkit.Addr(w.t), w.addr[to])
		require.NoError(w.t, p.Start())
		w.proxies[name] = p
	}
	return p.Listen
}

// names returns the sorted names of the programs with the prefix.
func (w *world) names(prefix ...string) []string {
	var found []string
	for name := range w.programs {
		if slices.ContainsFunc(prefix, func(p string) bool { return strings.HasPrefix(name, p) }) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

func (w *world) listens(name string) bool {
	c, err := net.DialTimeout("tcp", w.addr[name], time.Second)
	return err == nil && c.Close() == nil
}

func (w *world) await(what string, ok func() bool) {
	w.t.Helper()
	testkit.Eventually(w.t, waitLimit, what, ok)
}

// ready waits until every process is ready.
func (w *world) ready() {
	w.t.Helper()
	waiting := ""
	defer func() {
		if waiting != "" {
			w.t.Logf("not ready: %s\n%s", waiting, tail(filepath.Join(w.dir, "log", waiting+".log"), 5))
		}
	}()
	w.await("all processes to be ready", func() bool {
		for _, name := range w.names("broker-", "orchestrator-", "worker-") {
			if waiting = name; !w.programs[name].running() {
				w.programs[name].start() // as its supervisor would
				return false
			}
			if !isReady(w.t.Context(), w.addr[name]) {
				return false
			}
		}
		waiting = ""
		return true
	})
}

func isReady(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
}

// cleanWhenInterrupted cleans up when the test is interrupted. Its mounts are removed with its mount namespace.
func (w *world) cleanWhenInterrupted() {
	interrupted, over := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(interrupted, syscall.SIGINT, syscall.SIGTERM)
	w.t.Cleanup(func() {
		signal.Stop(interrupted)
		close(over)
	})
	go func() {
		select {
		case <-over:
			return
		case <-interrupted:
		}
		// All of them are descendants of this process.
		for _, pid := range family(os.Getpid())[1:] {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have exited
		}
		// A process that is being killed may still write.
		for try := 0; os.RemoveAll(w.dir) != nil && try < 50; try++ {
			for name := range w.full {
				_ = syscall.Unmount(filepath.Join(w.dir, name), syscall.MNT_DETACH) // otherwise it is removed with the namespace
			}
			wait(context.Background(), 100*time.Millisecond)
		}
		fmt.Fprintln(os.Stderr, "interrupted")
		os.Exit(harness.Clean(130))
	}()
}

// remove stops everything and removes the folder.
func (w *world) remove() {
	if w.t.Failed() {
		for _, name := range w.names("") {
			if text := tail(w.programs[name].log, 8); text != "" {
				w.t.Logf("--- %s: the end of its log\n%.6000s", name, text)
			}
		}
	}
	if w.admin != nil {
		w.admin.Close()
	}
	if w.db != nil {
		_ = w.db.Close()
	}
	for _, p := range w.programs {
		p.kill()
	}
	for _, p := range w.proxies {
		p.Stop()
	}
	if w.postgres != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		w.signalPostgres(syscall.SIGCONT)
		if err := w.postgres.Stop(ctx); err != nil {
			w.t.Errorf("stop Postgres: %v", err)
		}
	}
	for name := range w.full {
		if err := syscall.Unmount(filepath.Join(w.dir, name), 0); err != nil {
			w.t.Logf("unmount %s: %v; it is removed with the namespace", name, err)
		}
	}
	if keep := os.Getenv("KEB_CHAOS_KEEP"); keep != "" {
		w.t.Logf("kept: %s", w.dir)
		return
	}
	if err := os.RemoveAll(w.dir); err != nil {
		w.t.Errorf("remove %s: %v", w.dir, err)
	}
}
