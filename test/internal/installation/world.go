//go:build linux

package installation

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

	"github.com/kyma-project/keb/libs/postgres/pglocal"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

const (
	root = "../.."
	// Replicas is the number of replicas of each broker, orchestrator and worker.
	Replicas = 2
	// WaitLimit is the time limit for one condition on a busy machine.
	WaitLimit = 3 * time.Minute
	// FileStore is the storage limit of the streams.
	FileStore = "8GB"
	// keepVariable keeps the folder after the test.
	keepVariable = "KEB_KEEP_INSTALLATION"
	// AdminUser has all permissions on the bus, like an administrator of the server.
	AdminUser, adminPassword = "suite", "suite"
	// SystemUser is a user of the system account.
	SystemUser = "system"
)

// Folders of an installation with the files of a service, for Config.Disk.
const (
	DiskNATS     = "nats"
	DiskPostgres = "pg"
)

// Config describes an installation.
type Config struct {
	// Name is the name of the suite; it is part of the name of the folder.
	Name string
	// Disk prepares the empty folder of a service, DiskPostgres or the name of a NATS server, before the service starts. It reports whether it mounted a
	// file system there, which New unmounts at the end of the test. Optional.
	Disk func(name, dir string) (mounted bool)
	// Settings are settings of Postgres by name, in addition to those of a durable server. Optional.
	Settings map[string]string
	// Standby starts a synchronous standby of Postgres, whose address the services know. Its settings must allow pg_rewind (wal_log_hints).
	Standby bool
	// Env are further variables by service: "landscape", "worker-avs". Optional.
	Env map[string]map[string]string
	// Servers is the number of NATS servers: three for a cluster; 0 means one without a cluster.
	Servers int
	// Release is the release whose services run first; nil for those of this tree. The external systems are those of this tree.
	Release *harness.Release
}

// AVSLookUp returns the variables, by service, that make AvS find evaluations by name. Otherwise an evaluation is lost if the request that
// creates it gets no answer: only the answer contains its id.
func AVSLookUp() map[string]map[string]string {
	return map[string]map[string]string{"worker-avs": {"KEB_AVS_LOOK_UP": "true"}, "landscape": {"KEB_LANDSCAPE_AVS_LOOK_UP": "true"}}
}

// The dependencies of the services.
const (
	ToNATS      = "nats" // also the beginning of the names of all servers of a cluster
	ToPostgres  = "postgres"
	ToStandby   = "standby"
	ToLandscape = "landscape"
)

// World is an installation.
type World struct {
	// T is the test of the current phase.
	T        *testing.T
	Dir      string
	Programs map[string]*Program // "broker-0", "nats", "landscape"
	// Proxies are by "broker-0 nats": the process and what it reaches through the proxy.
	Proxies map[string]*toxiproxy.Proxy
	Addr    map[string]string // listen addresses by program
	server  *toxiproxy.ApiServer

	Postgres *pglocal.Server
	// Primary and Standby are the current roles of the servers of an installation with a standby, else nil.
	Primary, Standby *Node

	DB       *sqlx.DB // without a proxy, for queries of the test
	JS       jetstream.JetStream
	pgConfig pglocal.Config
	admin    *nats.Conn
	natsConf string // the file of a single server
	// Servers are the names of the NATS servers: ToNATS, or those of a cluster.
	Servers []string
	mounts  []string // folders

	Sys           *harness.System
	env           map[string]map[string]string // of the Config
	doors         map[string]string            // addresses of APIs by program
	secrets       harness.Secrets
	brokers       []string
	orchestrators []string
	password      string
	keb           *Program
	// Down are the programs that are kept down; exits counts unexpected exits.
	Down  map[string]bool
	exits int
	// restless is true if an accepted operation has not ended, so that later phases are meaningless.
	restless bool
	// Foreign reports whether a dead letter with these headers comes from the test; it is not counted. Optional.
	Foreign func(nats.Header) bool
	// gone are the deprovisioned runtimes that Settle checks.
	gone []*harness.Order
	// late is the number of objects that noteLate found since the last Settle.
	late int
}

// New builds and starts everything. It stops everything at the end of the test.
func New(t *testing.T, cfg Config) *World {
	t.Helper()
	dir, err := os.MkdirTemp("", "keb-"+cfg.Name+"-") //nolint:usetesting // it contains mounts, and is also removed after an interruption
	require.NoError(t, err)
	w := &World{
		T: t, Dir: dir, Programs: map[string]*Program{}, Proxies: map[string]*toxiproxy.Proxy{}, Addr: map[string]string{}, Down: map[string]bool{},
		env: cfg.Env, doors: map[string]string{}, server: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
		Servers: serverNames(cfg.Servers),
	}
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxics log through the library's own logger
	t.Cleanup(w.remove)
	w.cleanWhenInterrupted()
	if err := os.Chmod(dir, 0o711); err != nil { // Postgres runs as another user
		t.Fatal(err)
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "log"), 0o755))
	for _, name := range append(slices.Clone(w.Servers), DiskPostgres) {
		disk := filepath.Join(dir, name)
		require.NoError(t, os.Mkdir(disk, 0o755))
		if cfg.Disk != nil && cfg.Disk(name, disk) {
			w.mounts = append(w.mounts, disk)
		}
	}
	keb := harness.Keb(t)
	if cfg.Release != nil {
		keb = cfg.Release.Program(t, "cli")
	}

	for _, name := range []string{"landscape", ToPostgres, ToStandby} {
		w.Addr[name] = testkit.Addr(t)
	}
	for _, name := range w.Servers {
		w.Addr[name], w.Addr[name+"-http"], w.Addr[name+toRoute] = testkit.Addr(t), testkit.Addr(t), testkit.Addr(t)
	}
	w.secrets = harness.MakeSecretsWith(t, keb, filepath.Join(dir, "secrets"))
	w.password = w.secrets.Read("cli/osb-password")
	w.startPostgres(cfg)
	w.secrets.MakeUsers(w.DB)
	binary := harness.Program(t, "github.com/nats-io/nats-server/v2", "nats-server")
	for _, name := range w.Servers {
		w.addNATS(binary, name)
	}
	landscape := []string{
		"KEB_LANDSCAPE_ADDR=" + w.Addr["landscape"], "KEB_LANDSCAPE_DATA_DIR=" + filepath.Join(dir, "landscape"),
		"KEB_LANDSCAPE_EXTERNAL_URL=http://" + w.proxy("worker-0", ToLandscape), "KEB_LANDSCAPE_CLUSTER_TIME=1s", "KEB_LANDSCAPE_RECONCILE_TIME=300ms",
		"KEB_LANDSCAPE_BINDINGS=3000",
	}
	for name, value := range cfg.Env["landscape"] {
		landscape = append(landscape, name+"="+value)
	}
	w.add("landscape", command{path: harness.Keb(t), env: landscape, args: []string{"landscape"}})
	w.Await("NATS and the landscape", func() bool { return w.listens(w.Servers[0]) && w.listens("landscape") })
	w.connect()
	first := w.Version(cfg.Release)
	for _, name := range slices.Sorted(maps.Keys(first.services)) {
		w.add(name, first.services[name])
	}
	w.Sys = harness.Connect(t, harness.Remote{
		OSBAddr: w.brokers[0], OperatorAddr: w.orchestrators[0], LandscapeAddr: w.Addr["landscape"], Password: w.password, Token: w.secrets.Read("cli/operator-token"),
	})
	w.keb = &Program{t: t, name: "keb", log: filepath.Join(dir, "log", "keb.log"), command: command{path: keb, env: []string{
		"KEB_OPERATOR_ADDR=" + w.orchestrators[0], "KEB_TOKEN=" + w.secrets.Read("cli/operator-token"), "KEB_OSB_ADDR=" + w.brokers[0],
		"KEB_OSB_USER=keb", "KEB_OSB_PASSWORD=" + w.password, "HOME=" + dir,
	}}}
	w.Ready()
	// Steps of a simulated landscape take no time; steps of a real one can be interrupted while they wait for an answer.
	for _, system := range []string{"avs", "edp", "provisioner", "director", "reconciler", "control-plane", "gardener", "runtimes"} {
		w.Sys.Fault(system, `{"latencyMs": 30}`)
	}
	return w
}

func port(addr string) (n int) {
	_, p, _ := net.SplitHostPort(addr)
	_, _ = fmt.Sscan(p, &n)
	return n
}

func (w *World) startPostgres(cfg Config) {
	w.pgConfig = pglocal.Config{
		DataDir: filepath.Join(w.Dir, DiskPostgres, "data"), Port: port(w.Addr["postgres"]), Durable: true, Settings: cfg.Settings, Log: slog.New(slog.DiscardHandler),
	}
	w.RestartPostgres()
	require.NoError(w.T, w.Postgres.EnsureDatabase(w.T.Context(), "keb"))
	if cfg.Standby {
		w.startStandby(cfg)
		return
	}
	w.DB = w.Open(w.Postgres.URL("keb"), cfg.Name)
}

// RestartPostgres cleans up after the previous Postgres and starts a new one.
func (w *World) RestartPostgres() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.T.Context()), WaitLimit)
	defer cancel()
	if w.Postgres != nil {
		_ = w.Postgres.Stop(ctx) // it was killed
	}
	var err error
	w.Postgres, err = pglocal.Start(ctx, w.pgConfig)
	require.NoError(w.T, err, "start Postgres")
}

// SignalPostgres sends a signal to all processes of Postgres.
func (w *World) SignalPostgres(s syscall.Signal) {
	for _, pid := range family(w.Postgres.PID()) {
		_ = syscall.Kill(pid, s) // some may have exited
	}
}

// KillPostgres kills all processes of Postgres, and starts it again after a time.
func (w *World) KillPostgres(away time.Duration) {
	w.SignalPostgres(syscall.SIGKILL)
	w.Pass(away)
	w.RestartPostgres()
}

// Cut closes the connections of all replicas, and rejects new ones.
func (w *World) Cut(away time.Duration, who, to string) {
	for name, p := range w.Proxies {
		if strings.HasPrefix(name, who) && strings.HasSuffix(name, to) {
			p.Stop()
			defer func() {
				require.NoErrorf(w.T, p.Start(), "proxy %s", name)
			}()
		}
	}
	w.Pass(away)
}

// addNATS starts a server.
func (w *World) addNATS(binary, name string) {
	w.deployNATS(name)
	w.add(name, command{path: binary, args: []string{"-c", w.natsConf}})
}

// deployNATS writes the configuration of a server, with the users that are generated for a deployment, one more for the test, and one for the
// system account.
func (w *World) deployNATS(name string) {
	conf := w.secrets.Read("nats/nats.conf")
	for from, to := range map[string]string{
		`(?m)^listen: .*$`: `listen: "` + w.Addr[name] + `"`, `(?m)^http: .*$`: `http: "` + w.Addr[name+"-http"] + `"`,
		`store_dir: /data`:                    `store_dir: "` + filepath.Join(w.Dir, name) + `"`,
		`(?m)^(\s+)user: "orchestrator"$`:     `${1}user: "` + AdminUser + `", password: "` + adminPassword + `"` + "\n    }, {\n" + `${1}user: "orchestrator"`,
		`max_file_store: ` + FileStore:        `max_file_store: ` + FileStore,
		`(?m)^(\s*)jetstream: enabled\s*$`:    `${1}jetstream: enabled`,
		`(?m)^server_name: .*$`:               `server_name: ` + name + w.clusterBlock(name),
		`(?m)^(\s*)max_memory_store: \S+\s*$`: `${1}max_memory_store: 256MB`,
		`(?m)^accounts \{$`:                   "system_account: SYS\naccounts {\n  SYS: {users: [{user: \"" + SystemUser + `", password: "` + adminPassword + `"}]}`,
	} {
		pattern := regexp.MustCompile(from)
		if !pattern.MatchString(conf) {
			w.T.Fatalf("the configuration of NATS has no %s", from)
		}
		conf = pattern.ReplaceAllString(conf, to)
	}
	w.natsConf = filepath.Join(w.Dir, name+".conf")
	w.configureNATS(conf)
}

func (w *World) configureNATS(conf string) {
	require.NoError(w.T, os.WriteFile(w.natsConf, []byte(conf), 0o600))
}

// StoreLimit changes the storage limit of the streams, which needs a restart of the server.
func (w *World) StoreLimit(size string) {
	raw, err := os.ReadFile(w.natsConf)
	require.NoError(w.T, err)
	w.configureNATS(regexp.MustCompile(`max_file_store: \S+`).ReplaceAllString(string(raw), "max_file_store: "+size))
}

func (w *World) connect() {
	w.admin = w.Connect(AdminUser, w.Servers...)
	var err error
	w.JS, err = jetstream.New(w.admin, jetstream.WithDefaultTimeout(2*time.Second))
	require.NoError(w.T, err)
}

func (w *World) add(name string, c command) {
	p := &Program{t: w.T, name: name, log: filepath.Join(w.Dir, "log", name+".log"), command: c}
	w.Programs[name] = p
	p.Start()
}

// service returns how a replica starts, with the environment of docker-compose.yml: only addresses and folders are others, and it is quicker to
// look again.
func (w *World) service(name string, replica int, s harness.Service, path string) command {
	role := "worker"
	if !strings.HasPrefix(name, "worker-") {
		role = name
	}
	who := fmt.Sprintf("%s-%d", role, replica)
	replace := strings.NewReplacer("landscape:8090", w.proxy(who, ToLandscape), "nats:4222", w.natsProxies(who), "/run/keb/", w.secrets.Path(name, "")+"/")
	full := fmt.Sprintf("%s-%d", name, replica)
	if w.Addr[full] == "" {
		w.Addr[full] = testkit.Addr(w.T)
	}
	own := map[string]string{"KEB_METRICS_ADDR": w.Addr[full]}
	maps.Copy(own, w.env[name])
	if role != "worker" {
		own["KEB_DATABASE_URL"] = w.secrets.Read(name + "/database-url")
		hosts := w.proxy(who, ToPostgres)
		if w.Standby != nil {
			hosts += "," + w.proxy(who, ToStandby)
		}
		own["KEB_DATABASE_URL"] = strings.Replace(own["KEB_DATABASE_URL"], "postgres:5432", hosts, 1)
		delete(s.Environment, "KEB_DATABASE_URL_FILE")
		door := w.doors[full]
		if door == "" {
			door = testkit.Addr(w.T)
			w.doors[full] = door
			if role == "broker" {
				w.brokers = append(w.brokers, door)
			} else {
				w.orchestrators = append(w.orchestrators, door)
			}
		}
		if role == "broker" {
			own["KEB_OSB_ADDR"] = door
		} else {
			own["KEB_OPERATOR_ADDR"] = door
		}
	}
	return command{path: path, env: s.Env(replace, own), args: s.Command}
}

// proxy returns the address at which a replica of a role reaches a dependency.
func (w *World) proxy(who, to string) string {
	name := who + " " + to
	p := w.Proxies[name]
	if p == nil {
		p = toxiproxy.NewProxy(w.server, name, testkit.Addr(w.T), w.Addr[to])
		require.NoError(w.T, p.Start())
		w.Proxies[name] = p
	}
	return p.Listen
}

// Names returns the sorted names of the programs with the prefix.
func (w *World) Names(prefix ...string) []string {
	var found []string
	for name := range w.Programs {
		if slices.ContainsFunc(prefix, func(p string) bool { return strings.HasPrefix(name, p) }) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

func (w *World) listens(name string) bool {
	c, err := net.DialTimeout("tcp", w.Addr[name], time.Second)
	return err == nil && c.Close() == nil
}

// Await waits until a condition holds.
func (w *World) Await(what string, ok func() bool) {
	w.T.Helper()
	testkit.Eventually(w.T, WaitLimit, what, ok)
}

// PasswordOf returns the password of a user of the bus, for example "worker-avs".
func (w *World) PasswordOf(user string) string { return w.secrets.Read(user + "/nats-password") }

// Ready waits until every process is ready.
func (w *World) Ready() {
	w.T.Helper()
	waiting := ""
	defer func() {
		if waiting != "" {
			w.T.Logf("not ready: %s\n%s", waiting, tail(filepath.Join(w.Dir, "log", waiting+".log"), 5))
		}
	}()
	w.Await("all processes to be ready", func() bool {
		for _, name := range w.Names("broker-", "orchestrator-", "worker-") {
			if waiting = name; !w.Programs[name].Running() {
				w.Programs[name].Start() // as its supervisor would
				return false
			}
			if !isReady(w.T.Context(), w.Addr[name]) {
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
	response, err := http.DefaultClient.Do(request) //nolint:forbidigo // the context has a deadline
	return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
}

// Take kills programs and keeps them down.
func (w *World) Take(prefix ...string) {
	for _, name := range w.Names(prefix...) {
		w.Down[name] = true
		w.Programs[name].Kill()
	}
}

// Bring starts programs that Take killed.
func (w *World) Bring(prefix ...string) {
	for _, name := range w.Names(prefix...) {
		delete(w.Down, name)
		w.Programs[name].Start()
	}
}

// Killed kills programs and starts them again after a time.
func (w *World) Killed(away time.Duration, prefix ...string) {
	w.Take(prefix...)
	w.Pass(away)
	w.Bring(prefix...)
}

// cleanWhenInterrupted cleans up when the test is interrupted. Its mounts are removed with its mount namespace.
func (w *World) cleanWhenInterrupted() {
	interrupted, over := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(interrupted, syscall.SIGINT, syscall.SIGTERM)
	w.T.Cleanup(func() {
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
		for try := 0; os.RemoveAll(w.Dir) != nil && try < 50; try++ {
			for _, disk := range w.mounts {
				_ = syscall.Unmount(disk, syscall.MNT_DETACH) // otherwise it is removed with the namespace
			}
			Wait(context.Background(), 100*time.Millisecond)
		}
		fmt.Fprintln(os.Stderr, "interrupted")
		os.Exit(harness.Clean(130)) //nolint:forbidigo // the test was interrupted
	}()
}

// remove stops everything and removes the folder.
func (w *World) remove() {
	if w.T.Failed() {
		for _, name := range w.Names("") {
			if text := tail(w.Programs[name].log, 8); text != "" {
				w.T.Logf("--- %s: the end of its log\n%.6000s", name, text)
			}
		}
	}
	if w.admin != nil {
		w.admin.Close()
	}
	if w.DB != nil {
		_ = w.DB.Close()
	}
	for _, p := range w.Programs {
		p.Kill()
	}
	for _, p := range w.Proxies {
		p.Stop()
	}
	w.removeNodes()
	if w.Postgres != nil && w.Primary == nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		w.SignalPostgres(syscall.SIGCONT)
		if err := w.Postgres.Stop(ctx); err != nil {
			w.T.Errorf("stop Postgres: %v", err)
		}
	}
	for _, disk := range w.mounts {
		if err := syscall.Unmount(disk, 0); err != nil {
			w.T.Logf("unmount %s: %v; it is removed with the namespace", disk, err)
		}
	}
	if os.Getenv(keepVariable) != "" {
		w.T.Logf("kept: %s", w.Dir)
		return
	}
	if err := os.RemoveAll(w.Dir); err != nil {
		w.T.Errorf("remove %s: %v", w.Dir, err)
	}
}
