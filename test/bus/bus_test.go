// Package bus tests the permissions on the bus. As the user of each worker and service, it tries every forbidden action on a server with the
// configuration of an installation.
package bus

import (
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

const (
	root      = "../.."
	waitLimit = time.Minute
)

// installation is a server with the users of the repository, the streams, and a consumer for each worker.
type installation struct {
	*harness.Services
	workers []string
}

func install(t *testing.T, log *slog.Logger) *installation {
	t.Helper()
	in := &installation{Services: harness.NewServices(t, root, log)}
	conf, err := os.ReadFile(root + "/deploy/nats/nats.conf")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`user: "worker-([^"]+)"`).FindAllSubmatch(conf, -1) {
		in.workers = append(in.workers, string(m[1]))
	}
	if len(in.workers) < 10 {
		t.Fatalf("the workers are only %v", in.workers)
	}
	consumers := []event.ConsumerSpec{
		event.RequestsConsumer(), event.ResultsConsumer(), event.FactsConsumer(event.UserBroker), event.CommandsConsumer(event.UserBroker),
	}
	for _, w := range in.workers {
		consumers = append(consumers, event.CommandsConsumer(w))
	}
	require.NoError(t, in.Bus.EnsureAll(t.Context(), consumers))
	return in
}

// users returns the names of all users of the bus.
func (in *installation) users() []string {
	users := []string{event.UserBroker, event.UserMonitor, event.UserOrchestrator, event.UserSignal}
	for _, w := range in.workers {
		users = append(users, event.WorkerUserName(w))
	}
	return users
}

// attacker is a connection that records the rejections of the server.
type attacker struct {
	user string
	nc   *nats.Conn

	mu      sync.Mutex
	refused map[string]bool
}

var violation = regexp.MustCompile(`(?i)permissions violation for (publish|subscription) to "([^"]+)"`)

func (in *installation) attack(t *testing.T, user string) *attacker {
	t.Helper()
	a := &attacker{user: user, refused: map[string]bool{}}
	nc, err := nats.Connect(in.NATS(), nats.UserInfo(user, harness.Password(user)), nats.CustomInboxPrefix(event.InboxPrefix(user)), nats.Timeout(waitLimit), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if m := violation.FindStringSubmatch(err.Error()); m != nil {
			a.refused[strings.ToLower(m[1])+" "+m[2]] = true
		}
	}))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	a.nc = nc
	return a
}

// settled waits until the server has processed all messages and their rejections are recorded.
func (a *attacker) settled(t *testing.T) {
	t.Helper()
	mark := fmt.Sprintf("nobody.may.%d", time.Now().UnixNano())
	require.NoError(t, a.nc.Publish(mark, nil))
	require.NoError(t, a.nc.FlushTimeout(waitLimit))
	testkit.Eventually(t, waitLimit, "the last rejection is recorded", func() bool { return a.isRefused("publish", mark) })
}

func (a *attacker) isRefused(verb, subject string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refused[verb+" "+subject]
}

// needs returns the permissions that a user needs for its work, written by hand. All other permissions must be rejected.
func needs(user string) (publish, subscribe []string) {
	consume := func(stream, name string) []string {
		of := stream + "." + name
		return []string{"$JS.API.CONSUMER.INFO." + of, "$JS.API.CONSUMER.MSG.NEXT." + of, "$JS.ACK." + of + ".>", "keb.dead." + stream}
	}
	serve := func(name string) []string {
		s := []string{"keb.worker." + name + ".ping", "keb.worker." + name + ".cancel", "keb.ask." + name + ".*"}
		for _, verb := range []string{"PING", "INFO", "STATS"} {
			s = append(s, "$SRV."+verb, "$SRV."+verb+".keb-worker-"+name, "$SRV."+verb+".keb-worker-"+name+".*")
		}
		return s
	}
	streams := []string{"KEB_REQUESTS", "KEB_COMMANDS", "KEB_RESULTS", "KEB_FACTS", "KEB_SIGNALS", "KEB_DEAD"}
	subscribe = []string{"_INBOX_" + user + ".>"}
	switch user {
	case "broker":
		publish = slices.Concat(consume("KEB_COMMANDS", "broker"), consume("KEB_FACTS", "broker"),
			[]string{"keb.request.*", "keb.result.broker.*", "keb.ask.orchestrator.*", "keb.ask.orchestrator.current.broker", "keb.ask.orchestrator.extend.broker", "keb.ask.runtime.*"})
		subscribe = slices.Concat(subscribe, serve("broker"), []string{"keb.ask.broker.credentials.*", "keb.ask.broker.keep.*", "keb.ask.broker.kept.*"})
	case "orchestrator":
		publish = slices.Concat(consume("KEB_REQUESTS", "orchestrator"), consume("KEB_RESULTS", "orchestrator"), consume("KEB_SIGNALS", "orchestrator"), consume("KEB_FACTS", "webhooks"), []string{
			"keb.command.*.*", "keb.fact.*.*", "keb.notice.operations", "keb.notice.holds", "keb.notice.limits", "keb.notice.overlays", "keb.ask.broker.instances", "keb.ask.broker.instance", "keb.ask.broker.find", "keb.ask.broker.upgrade", "keb.ask.hyperscaler.*", "keb.ask.spc.*",
			"keb.worker.*.cancel",
			"$SRV.INFO", "$SRV.STATS", "$JS.API.INFO", "$JS.API.STREAM.PURGE.KV_keb_stage", "$JS.API.STREAM.PURGE.KEB_COMMANDS",
			// dead letters, and their messages again
			"$JS.API.STREAM.MSG.GET.KEB_COMMANDS", "$JS.API.STREAM.MSG.GET.KEB_RESULTS", // what the streams have lost
			"$JS.API.STREAM.MSG.GET.KEB_DEAD", "$JS.API.STREAM.MSG.DELETE.KEB_DEAD", "$JS.API.CONSUMER.MSG.NEXT.KEB_DEAD.*",
			"keb.request.*", "keb.result.*.*", "keb.signal.>",
		})
		for _, s := range append(streams, "KV_keb_stage") {
			publish = append(publish, "$JS.API.STREAM.INFO."+s, "$JS.API.STREAM.CREATE."+s, "$JS.API.STREAM.UPDATE."+s)
		}
		for _, s := range streams {
			publish = append(publish, "$JS.API.CONSUMER.LIST."+s, "$JS.API.CONSUMER.NAMES."+s, "$JS.API.CONSUMER.INFO."+s+".*",
				"$JS.API.CONSUMER.DELETE."+s+".*", "$JS.API.CONSUMER.CREATE."+s+".>")
		}
		subscribe = append(subscribe, "keb.ask.orchestrator.*", "keb.ask.orchestrator.current.*", "keb.ask.orchestrator.extend.*", "keb.fact.*.*", "keb.notice.operations", "keb.notice.holds", "keb.notice.limits", "keb.notice.overlays",
			"$JS.EVENT.ADVISORY.STREAM.DELETED.*", "$JS.EVENT.ADVISORY.CONSUMER.DELETED.*.*")
	case "monitor":
		publish = []string{"$JS.API.INFO", "$JS.API.STREAM.LIST", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.MSG.GET.KEB_DEAD"}
		for _, verb := range []string{"PING", "INFO", "STATS"} {
			publish = append(publish, "$SRV."+verb, "$SRV."+verb+".>")
		}
		for _, s := range append(streams, "KV_keb_stage") {
			publish = append(publish, "$JS.API.STREAM.INFO."+s, "$JS.API.CONSUMER.LIST."+s, "$JS.API.CONSUMER.NAMES."+s, "$JS.API.CONSUMER.INFO."+s+".*")
		}
		subscribe = append(subscribe, "keb.fact.*.*")
	case "signal":
		publish = []string{"keb.signal.>"}
	default:
		name := strings.TrimPrefix(user, "worker-")
		publish = append(slices.Concat(consume("KEB_COMMANDS", name), consume("KEB_COMMANDS", name+"_ramped")), "keb.result."+name+".*", "keb.ask.broker.credentials."+name,
			"keb.ask.broker.keep."+name, "keb.ask.broker.kept."+name, "keb.ask.orchestrator.current."+name, "keb.ask.orchestrator.extend."+name,
			"$KV.keb_stage.>", "$JS.API.DIRECT.GET.KV_keb_stage", "$JS.API.DIRECT.GET.KV_keb_stage.$KV.keb_stage.>", "$JS.API.STREAM.INFO.KV_keb_stage")
		subscribe = append(subscribe, serve(name)...)
	}
	return publish, subscribe
}

// within reports whether a subject, or a filter of subjects, matches one of the patterns. A permission for "keb.ask.avs.*" includes
// "keb.ask.avs.>" for the server.
func within(patterns []string, subject string) bool {
	words := strings.Split(subject, ".")
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		want := strings.Split(pattern, ".")
		for i, w := range want {
			switch {
			case w == ">":
				return len(words) > i
			case i >= len(words) || w != "*" && w != words[i]:
				return false
			}
		}
		return len(want) == len(words)
	})
}

// universe returns all actions that a user could try: every verb on every stream and consumer, the stage memory and other buckets, the
// subjects and inboxes of all users, those of the system, and unknown ones.
//
// Only "make e2e SUITE=bus" tries all workers; make test tries four of them and the user's own.
func (in *installation) universe(user string) (publish, subscribe []string) {
	streams := []string{"KEB_REQUESTS", "KEB_COMMANDS", "KEB_RESULTS", "KEB_FACTS", "KEB_SIGNALS", "KEB_DEAD", "KV_keb_stage", "KV_other", "OBJ_other", "OTHER"}
	workers := in.workers
	if !testkit.InSuite("bus") {
		own := strings.TrimPrefix(user, "worker-")
		workers = slices.DeleteFunc(slices.Clone(workers), func(w string) bool {
			return w != "edp" && w != "hyperscaler" && w != "runtime" && w != "spc" && w != own
		})
	}
	served := append([]string{"broker", "orchestrator"}, workers...)
	for _, s := range streams {
		for _, verb := range []string{
			"CREATE", "UPDATE", "DELETE", "PURGE", "INFO", "MSG.GET", "MSG.DELETE", "SNAPSHOT", "RESTORE", "LEADER.STEPDOWN", "PEER.REMOVE", "CANCEL_MOVE",
		} {
			publish = append(publish, "$JS.API.STREAM."+verb+"."+s)
		}
		for _, c := range append(served, "new", "edp_ramped") {
			for _, verb := range []string{"CREATE", "DURABLE.CREATE", "DELETE", "INFO", "MSG.NEXT", "PAUSE", "RESET", "UNPIN", "LEADER.STEPDOWN"} {
				publish = append(publish, "$JS.API.CONSUMER."+verb+"."+s+"."+c)
			}
			publish = append(publish, "$JS.ACK."+s+"."+c+".1.1.1.1.0", "$JS.ACK._.hash."+s+"."+c+".1.1.1.1.0.x",
				"$JS.API.CONSUMER.CREATE."+s+"."+c+".keb.command.avs.S", "$JS.FC."+s+"."+c+".x")
			subscribe = append(subscribe, "$JS.ACK."+s+"."+c+".>")
		}
		publish = append(publish, "$JS.API.CONSUMER.LIST."+s, "$JS.API.CONSUMER.NAMES."+s, "$JS.API.CONSUMER.CREATE."+s,
			"$JS.API.DIRECT.GET."+s, "$JS.API.DIRECT.GET."+s+".keb.command.avs.S", "keb.dead."+s)
		subscribe = append(subscribe, "keb.dead."+s, "$JS.API.DIRECT.GET."+s, "$JS.API.STREAM.INFO."+s)
	}
	publish = append(publish, "$JS.API.INFO", "$JS.API.STREAM.LIST", "$JS.API.STREAM.NAMES", "$JS.API.ACCOUNT.PURGE.KEB", "$JS.API.META.LEADER.STEPDOWN",
		"$JS.API.SERVER.REMOVE", "$JS.API.DIRECT.GET.KV_keb_stage.$KV.keb_stage.o.s.1.k", "$KV.keb_stage.o.s.1.k", "$KV.other.k", "$O.other.C.x", "$O.other.M.x",
		"$SYS.REQ.SERVER.PING", "$SYS.REQ.USER.INFO", "$SYS.REQ.ACCOUNT.KEB.CONNZ", "$SYS.ACCOUNT.KEB.CONNECT", "$JS.EVENT.ADVISORY.API", "$NRG.AE.x", "_R_.x",
		"_GR_.x.x.keb.result.avs.S", "$JS.KEB.API.STREAM.INFO.KEB_RESULTS", "$MQTT.msgs.x")
	for _, verb := range []string{"PING", "INFO", "STATS"} {
		publish = append(publish, "$SRV."+verb)
		subscribe = append(subscribe, "$SRV."+verb, "$SRV."+verb+".>", "$SRV."+verb+".*")
		for _, w := range served {
			publish = append(publish, "$SRV."+verb+".keb-worker-"+w, "$SRV."+verb+".keb-worker-"+w+".id")
			subscribe = append(subscribe, "$SRV."+verb+".keb-worker-"+w, "$SRV."+verb+".keb-worker-"+w+".id")
		}
	}
	for _, w := range served {
		both := []string{
			"keb.command." + w + ".S", "keb.result." + w + ".S", "keb.worker." + w + ".ping", "keb.worker." + w + ".cancel", "keb.ask." + w + ".x", "keb.ask.broker.credentials." + w,
			"keb.ask.broker.keep." + w, "keb.ask.broker.kept." + w, "keb.ask.orchestrator.current." + w, "keb.ask.orchestrator.extend." + w,
		}
		publish = append(publish, both...)
		subscribe = append(subscribe, both...)
		subscribe = append(subscribe, "keb.command."+w+".*", "keb.result."+w+".*", "keb.ask."+w+".>")
	}
	for _, u := range in.users() {
		publish = append(publish, "_INBOX_"+u+".x")
		subscribe = append(subscribe, "_INBOX_"+u+".>", "_INBOX_"+u+".*")
	}
	both := []string{
		"keb.request.provision", "keb.request.deprovision", "keb.fact.provision.operation-started", "keb.notice.operations", "keb.notice.holds", "keb.notice.limits", "keb.notice.overlays", "keb.signal.approval.17",
		"keb.ask.broker.credentials", "keb.ask.broker.instances", "keb.ask.broker.instance", "keb.ask.broker.find", "keb.ask.broker.upgrade", "keb.ask.orchestrator.operations", "keb.ask.orchestrator.current", "_INBOX.x", "other",
	}
	publish = append(publish, both...)
	subscribe = append(subscribe, both...)
	subscribe = append(subscribe, ">", "*", "*.>", "keb.>", "keb.*.*.*", "keb.command.>", "keb.result.>", "keb.ask.>", "keb.dead.*", "keb.fact.*.*", "keb.signal.>", "$JS.>", "$JS.API.>",
		"$JS.ACK.>", "$SYS.>", "$KV.>", "$KV.keb_stage.>", "$O.>", "$SRV.>", "_INBOX.>", "_INBOX_*.>", "_R_.>", "$JS.EVENT.>", "$JS.EVENT.ADVISORY.>",
		"$JS.EVENT.ADVISORY.STREAM.DELETED.*", "$JS.EVENT.ADVISORY.CONSUMER.DELETED.*.*", "$JS.EVENT.METRIC.>", "$NRG.>")
	return publish, subscribe
}
