package natsconf_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/cmd/keb/internal/natsconf"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

// patience is the time limit for expected events. It is generous for busy machines.
const patience = time.Minute

// start runs a server with the configuration of two workers, one of them with a name that looks like a stream.
func start(t *testing.T) (url string) {
	t.Helper()
	conf, err := natsconf.Render(natsconf.Config{
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

// refusals records the permissions violations of a connection.
type refusals struct {
	mu   sync.Mutex
	seen map[string]bool
}

var refused = regexp.MustCompile(`(?i)permissions violation for (publish|subscription) to "([^"]+)"`)

func (r *refusals) note(_ *nats.Conn, _ *nats.Subscription, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := refused.FindStringSubmatch(err.Error()); m != nil {
		r.seen[strings.ToLower(m[1])+" "+m[2]] = true
	}
}

func (r *refusals) has(what string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[what]
}

func connect(t *testing.T, url, user string) (*nats.Conn, *refusals) {
	t.Helper()
	r := &refusals{seen: map[string]bool{}}
	nc, err := nats.Connect(url, nats.UserInfo(user, "secret of "+user), nats.Timeout(patience), nats.ErrorHandler(r.note))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc, r
}

// universe lists the subjects that a client could try: every stream with every consumer and every verb, the bucket, the subjects and
// inboxes of all users, the system's own subjects, and unknown subjects.
func universe() (publish, subscribe []string) {
	streams := []string{"KEB_REQUESTS", "KEB_COMMANDS", "KEB_RESULTS", "KEB_FACTS", "KEB_SIGNALS", "KEB_DEAD", "KV_keb_stage", "OTHER"}
	consumers := []string{"avs", "edp", "broker", "orchestrator", "new"}
	for _, s := range streams {
		for _, verb := range []string{"CREATE", "UPDATE", "DELETE", "PURGE", "INFO", "MSG.GET", "MSG.DELETE", "SNAPSHOT", "RESTORE", "LEADER.STEPDOWN", "PEER.REMOVE"} {
			publish = append(publish, "$JS.API.STREAM."+verb+"."+s)
		}
		for _, c := range consumers {
			for _, verb := range []string{"CREATE", "DURABLE.CREATE", "DELETE", "INFO", "MSG.NEXT", "PAUSE", "RESET", "UNPIN", "LEADER.STEPDOWN"} {
				publish = append(publish, "$JS.API.CONSUMER."+verb+"."+s+"."+c)
			}
			publish = append(publish, "$JS.ACK."+s+"."+c+".1.1.1.1.0", "$JS.API.CONSUMER.CREATE."+s+"."+c+".keb.filter")
			subscribe = append(subscribe, "$JS.ACK."+s+"."+c+".>")
		}
		publish = append(publish, "$JS.API.CONSUMER.LIST."+s, "$JS.API.CONSUMER.NAMES."+s, "$JS.API.CONSUMER.CREATE."+s,
			"$JS.API.DIRECT.GET."+s, "$JS.API.DIRECT.GET."+s+".keb.filter", "keb.dead."+s)
	}
	publish = append(publish, "$JS.API.INFO", "$JS.API.STREAM.LIST", "$JS.API.STREAM.NAMES", "$JS.API.ACCOUNT.PURGE.$G", "$JS.API.META.LEADER.STEPDOWN",
		"$JS.API.DIRECT.GET.KV_keb_stage.$KV.keb_stage.o.s.1.k", "$KV.keb_stage.o.s.1.k", "$KV.other.k", "$JS.FC.KV_keb_stage.x",
		"$SYS.REQ.SERVER.PING", "$SYS.REQ.USER.INFO", "$JS.EVENT.ADVISORY.API")
	for _, verb := range []string{"PING", "INFO", "STATS"} {
		publish = append(publish, "$SRV."+verb, "$SRV."+verb+".keb-worker-edp", "$SRV."+verb+".keb-worker-edp.id")
		subscribe = append(subscribe, "$SRV."+verb, "$SRV."+verb+".>")
		for _, w := range consumers {
			subscribe = append(subscribe, "$SRV."+verb+".keb-worker-"+w, "$SRV."+verb+".keb-worker-"+w+".id")
		}
	}
	for _, w := range append(consumers, "hyperscaler", "runtime") {
		both := []string{"keb.command." + w + ".S", "keb.result." + w + ".S", "keb.worker." + w + ".ping", "keb.ask." + w + ".x"}
		publish = append(publish, both...)
		subscribe = append(subscribe, both...)
		subscribe = append(subscribe, "keb.command."+w+".*", "keb.result."+w+".*")
	}
	for _, u := range []string{"broker", "orchestrator", "monitor", "signal", "worker-avs", "worker-edp"} {
		publish = append(publish, "_INBOX_"+u+".x")
		subscribe = append(subscribe, "_INBOX_"+u+".>")
	}
	both := []string{
		"keb.request.provision", "keb.signal.approval.17", "keb.fact.provision.operation-started", "keb.ask.broker.credentials", "keb.ask.broker.credentials.avs",
		"keb.ask.broker.credentials.edp", "keb.ask.broker.keep.avs", "keb.ask.broker.keep.edp", "keb.ask.broker.kept.avs", "keb.ask.broker.kept.edp",
		"keb.ask.orchestrator.operations", "keb.ask.orchestrator.current", "keb.ask.orchestrator.current.avs",
		"keb.ask.orchestrator.current.edp", "keb.ask.orchestrator.current.broker", "keb.ask.orchestrator.extend.avs", "keb.ask.orchestrator.extend.edp",
		"keb.ask.orchestrator.extend.broker", "_INBOX.x", "other",
	}
	publish = append(publish, both...)
	subscribe = append(subscribe, both...)
	subscribe = append(subscribe, ">", "keb.>", "keb.*.*.*", "$JS.>", "$SYS.>", "$KV.>", "$KV.keb_stage.>", "_INBOX.>", "$SRV.>", "keb.fact.*.*", "keb.dead.*",
		"$JS.EVENT.ADVISORY.>", "$JS.EVENT.ADVISORY.STREAM.DELETED.*", "$JS.EVENT.ADVISORY.CONSUMER.DELETED.*.*")
	return publish, subscribe
}

// allowed lists by hand the subjects of the universe that each user may use.
var allowed = map[string]struct{ publish, subscribe []string }{
	"worker-avs": {
		publish: []string{
			"$JS.API.CONSUMER.INFO.KEB_COMMANDS.avs", "$JS.API.CONSUMER.MSG.NEXT.KEB_COMMANDS.avs", "$JS.ACK.KEB_COMMANDS.avs.1.1.1.1.0",
			"keb.result.avs.S", "keb.dead.KEB_COMMANDS", "keb.ask.broker.credentials.avs", "keb.ask.orchestrator.current.avs",
			"keb.ask.orchestrator.extend.avs", "keb.ask.broker.keep.avs", "keb.ask.broker.kept.avs",
			"$JS.API.STREAM.INFO.KV_keb_stage", "$JS.API.DIRECT.GET.KV_keb_stage", "$JS.API.DIRECT.GET.KV_keb_stage.$KV.keb_stage.o.s.1.k", "$KV.keb_stage.o.s.1.k",
		},
		subscribe: []string{
			"_INBOX_worker-avs.>", "keb.worker.avs.ping", "keb.ask.avs.x", "$SRV.PING", "$SRV.PING.keb-worker-avs", "$SRV.PING.keb-worker-avs.id",
			"$SRV.INFO", "$SRV.INFO.keb-worker-avs", "$SRV.INFO.keb-worker-avs.id", "$SRV.STATS", "$SRV.STATS.keb-worker-avs", "$SRV.STATS.keb-worker-avs.id",
		},
	},
	"broker": {
		publish: []string{
			"$JS.API.CONSUMER.INFO.KEB_COMMANDS.broker", "$JS.API.CONSUMER.MSG.NEXT.KEB_COMMANDS.broker", "$JS.ACK.KEB_COMMANDS.broker.1.1.1.1.0",
			"$JS.API.CONSUMER.INFO.KEB_FACTS.broker", "$JS.API.CONSUMER.MSG.NEXT.KEB_FACTS.broker", "$JS.ACK.KEB_FACTS.broker.1.1.1.1.0",
			"keb.request.provision", "keb.result.broker.S", "keb.dead.KEB_COMMANDS", "keb.dead.KEB_FACTS", "keb.ask.orchestrator.x",
			"keb.ask.orchestrator.operations", "keb.ask.orchestrator.current", "keb.ask.orchestrator.current.broker", "keb.ask.orchestrator.extend.broker",
			"keb.ask.runtime.x",
		},
		subscribe: []string{
			"_INBOX_broker.>", "keb.worker.broker.ping", "keb.ask.broker.x", "keb.ask.broker.credentials", "keb.ask.broker.credentials.avs", "keb.ask.broker.credentials.edp",
			"keb.ask.broker.keep.avs", "keb.ask.broker.keep.edp", "keb.ask.broker.kept.avs", "keb.ask.broker.kept.edp",
			"$SRV.PING", "$SRV.PING.keb-worker-broker", "$SRV.PING.keb-worker-broker.id", "$SRV.INFO", "$SRV.INFO.keb-worker-broker",
			"$SRV.INFO.keb-worker-broker.id", "$SRV.STATS", "$SRV.STATS.keb-worker-broker", "$SRV.STATS.keb-worker-broker.id",
		},
	},
}

func TestRender_EachUser_HasOnlyItsPermissions(t *testing.T) {
	t.Parallel()
	url := start(t)
	for user, want := range allowed {
		t.Run(user, func(t *testing.T) {
			publish, subscribe := universe()
			nc, r := connect(t, url, user)
			for _, subject := range publish {
				require.NoError(t, nc.Publish(subject, nil))
			}
			for _, subject := range subscribe {
				_, err := nc.SubscribeSync(subject)
				require.NoError(t, err)
			}
			// Violations arrive in order.
			require.NoError(t, nc.Flush())
			testkit.Eventually(t, patience, "the last refusal is there", func() bool {
				return r.has("subscription $JS.EVENT.ADVISORY.CONSUMER.DELETED.*.*")
			})
			left := func(verb string, subjects []string) []string {
				var got []string
				for _, s := range subjects {
					if !r.has(verb + " " + s) {
						got = append(got, s)
					}
				}
				slices.Sort(got)
				return slices.Compact(got)
			}
			slices.Sort(want.publish)
			slices.Sort(want.subscribe)
			if diff := cmp.Diff(want.publish, left("publish", publish)); diff != "" {
				t.Errorf("%s may publish (-want +got):\n%s", user, diff)
			}
			if diff := cmp.Diff(want.subscribe, left("subscription", subscribe)); diff != "" {
				t.Errorf("%s may subscribe to (-want +got):\n%s", user, diff)
			}
		})
	}
}

// The permissions of these two users are broad, so the test lists what they must never do.
func TestRender_OrchestratorAndMonitor_AreLimited(t *testing.T) {
	t.Parallel()
	url := start(t)
	never := map[string][]string{
		event.UserOrchestrator: {
			"$JS.API.STREAM.DELETE.KEB_COMMANDS", "$JS.API.STREAM.PURGE.KEB_RESULTS", "$JS.API.STREAM.CREATE.OTHER", "$JS.API.CONSUMER.MSG.NEXT.KEB_COMMANDS.avs",
			"$JS.API.CONSUMER.CREATE.KV_keb_stage.new", "$JS.API.DIRECT.GET.KV_keb_stage", "$KV.keb_stage.o.s.1.k",
			"$JS.API.STREAM.MSG.GET.KV_keb_stage",
			// It publishes dead letters again on the subjects of requests, results, signals and facts, but not on others beside them, and it reads no
			// messages of other streams.
			"keb.request", "keb.request.provision.S", "keb.result.avs", "keb.result.avs.S.x", "keb.signal", "keb.fact.provision", "keb.command.avs",
			"keb.worker.avs.ping", "keb.ask.avs.x", "keb.ask.broker.credentials.avs", "$JS.API.STREAM.MSG.GET.KEB_RESULTS", "$JS.API.STREAM.MSG.DELETE.KEB_RESULTS",
			"$JS.API.CONSUMER.MSG.NEXT.KEB_FACTS.broker", "$JS.API.STREAM.PURGE.KEB_DEAD", "$JS.API.STREAM.DELETE.KEB_DEAD",
		},
		event.UserMonitor: {
			"$JS.API.STREAM.CREATE.KEB_COMMANDS", "$JS.API.STREAM.PURGE.KEB_DEAD", "$JS.API.CONSUMER.CREATE.KEB_FACTS.new", "$JS.API.CONSUMER.MSG.NEXT.KEB_FACTS.broker",
			"keb.command.avs.S", "keb.ask.broker.credentials", "$JS.API.STREAM.MSG.GET.KV_keb_stage", "$JS.API.DIRECT.GET.KV_keb_stage", "$JS.ACK.KEB_FACTS.broker.1.1.1.1.0",
		},
	}
	for user, subjects := range never {
		nc, r := connect(t, url, user)
		for _, s := range subjects {
			require.NoError(t, nc.Publish(s, nil))
		}
		require.NoError(t, nc.Flush())
		for _, s := range subjects {
			testkit.Eventually(t, patience, user+" is refused "+s, func() bool { return r.has("publish " + s) })
		}
	}
	if _, err := nats.Connect(url, nats.UserInfo("worker-avs", "secret of worker-edp")); err == nil {
		t.Error("a user can log on with the password of another user")
	}
	if _, err := nats.Connect(url); err == nil {
		t.Error("a client can log on without a user")
	}
}

func TestRender_CommittedFile_IsUpToDate(t *testing.T) {
	t.Parallel()
	committed, err := os.ReadFile("../../../../deploy/nats/nats.conf")
	require.NoError(t, err)
	var workers []string
	for _, m := range regexp.MustCompile(`user: "worker-([^"]+)"`).FindAllSubmatch(committed, -1) {
		workers = append(workers, string(m[1]))
	}
	want, err := natsconf.Render(natsconf.Config{Workers: workers, Password: natsconf.FromEnvironment})
	require.NoError(t, err)
	if !bytes.Equal(committed, want) {
		t.Errorf("deploy/nats/nats.conf differs from the output of keb nats config: generate it again (-want +got):\n%s", cmp.Diff(string(want), string(committed)))
	}
}
