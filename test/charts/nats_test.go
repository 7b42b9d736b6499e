package charts_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats-server/v2/conf"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

//go:generate go test -count=1 -run ^TestNATS_Users_MatchContract$ . -update

const (
	usersFile = kebDir + "files/nats-users.yaml"
	// placeholder stands for the name of a worker in the file; no subject of the contract has it.
	placeholder = "WORKER"
)

type natsUser struct {
	Account    string      `json:"account"`
	Publish    []string    `json:"publish"`
	Subscribe  []string    `json:"subscribe"`
	Answers    bool        `json:"answers"`
	AnswerTime string      `json:"answerTime,omitempty"`
	Imports    []natsGrant `json:"imports"`
}

// natsGrant is an event.Grant, seen from the account that imports it.
type natsGrant struct {
	From    string `json:"from"`
	Subject string `json:"subject"`
	Many    bool   `json:"many,omitempty"`
	Facts   bool   `json:"facts,omitempty"`
}

// asked are the workers that a user names, and does not ask as one among all.
var asked = []string{"hyperscaler", "runtime", "spc"}

// imported are the grants to an account, with the placeholder for what is given by every worker.
func imported(account string) []natsGrant {
	var grants []natsGrant
	for _, g := range event.Grants(event.Users(append(asked, placeholder)...)) {
		if g.To != account {
			continue
		}
		one := natsGrant{From: g.From, Subject: g.Subject, Many: g.Many, Facts: g.Facts}
		if slices.ContainsFunc(asked, func(w string) bool {
			return g.From == event.WorkerUserName(w) && !strings.HasPrefix(g.Subject, "keb.ask.")
		}) {
			continue // as from every worker
		}
		grants = append(grants, one)
	}
	return grants
}

func TestNATS_Users_MatchContract(t *testing.T) {
	t.Parallel()
	users := map[string]natsUser{}
	for _, u := range append(event.Users(), event.WorkerUser(placeholder)) {
		account := event.AccountOf(u.Name)
		entry := natsUser{Account: account, Publish: u.Publish, Subscribe: u.Subscribe, Answers: u.Answers, Imports: imported(account)}
		if u.Answers {
			entry.AnswerTime = event.AnswerTime.String()
		}
		users[strings.Replace(u.Name, event.WorkerUserName(placeholder), "worker", 1)] = entry
	}
	text, err := yaml.Marshal(users)
	require.NoError(t, err)
	want := "# What each user of the bus may do, and what its account imports; WORKER is the name of a worker. Generated from libs/event/permissions.go by `make generate`.\n" + string(text)
	if testkit.Update() {
		require.NoError(t, os.WriteFile(usersFile, []byte(want), 0o600))
		return
	}
	if diff := cmp.Diff(want, readFile(t, usersFile)); diff != "" {
		t.Errorf("run `make generate`: %s", diff)
	}
}

// The configuration is read by the server itself, whose users then are held against the contract.
func TestNATS_Bundled_HasUsers(t *testing.T) { //nolint:paralleltest // it sets the environment
	objects := rendered(t, everything)
	set := kubetest.One[*appsv1.StatefulSet](t, objects, "keb-nats")
	secret := kubetest.One[*corev1.Secret](t, objects, "keb-nats")
	var workers []string
	for _, e := range set.Spec.Template.Spec.Containers[0].Env {
		ref := e.ValueFrom.SecretKeyRef
		t.Setenv(e.Name, secret.StringData[ref.Key])
		if worker, ok := strings.CutPrefix(ref.Key, "worker-"); ok {
			workers = append(workers, worker)
		}
	}
	if !slices.Contains(workers, "hello-world") || !slices.Contains(workers, "avs") || len(workers) != 16 {
		t.Errorf("workers with a user: %v", workers)
	}
	file := filepath.Join(t.TempDir(), "nats.conf")
	// The files of the Secret that is mounted.
	ca := testkit.NewCA(t, "chart")
	pair := ca.Issue(t, testkit.Leaf{Hosts: []string{"keb-nats"}})
	text := strings.NewReplacer("/etc/nats-tls/tls.crt", pair.CertFile, "/etc/nats-tls/tls.key", pair.KeyFile, "/etc/nats-tls/ca.crt", ca.File).
		Replace(kubetest.One[*corev1.ConfigMap](t, objects, "keb-nats").Data["nats.conf"])
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	opts, err := server.ProcessConfigFile(file)
	require.NoError(t, err)
	if !opts.JetStream || opts.StoreDir != "/data" || opts.JetStreamMaxStore != 7<<30 || opts.JetStreamMaxMemory != 1<<30 || opts.HTTPPort != 8222 {
		t.Errorf("JetStream %v in %s, %d and %d bytes, monitoring at %d", opts.JetStream, opts.StoreDir, opts.JetStreamMaxStore, opts.JetStreamMaxMemory, opts.HTTPPort)
	}
	if opts.PingInterval != 2*time.Second || opts.MaxPingsOut != 2 {
		t.Errorf("a ping every %s, %d without an answer; want those of keb nats config", opts.PingInterval, opts.MaxPingsOut)
	}
	got := map[string]*server.User{}
	for _, u := range opts.Users {
		got[u.Username] = u
		if len(u.Password) < 16 || u.Password != secret.StringData[u.Username] {
			t.Errorf("%s: not the password of the Secret", u.Username)
		}
	}
	want := event.Users(workers...)
	if diff := cmp.Diff(grantsOf(want), accountsOf(t, file), cmpopts.SortSlices(func(a, b string) bool { return a < b })); diff != "" {
		t.Errorf("the accounts are not those of the contract (-want +got):\n%s", diff)
	}
	if len(got) != len(want) {
		t.Errorf("%d users, want %d", len(got), len(want))
	}
	for _, u := range want {
		is := got[u.Name]
		if is == nil {
			t.Errorf("no user %s", u.Name)
			continue
		}
		if diff := cmp.Diff(u.Publish, is.Permissions.Publish.Allow) + cmp.Diff(u.Subscribe, is.Permissions.Subscribe.Allow); diff != "" {
			t.Errorf("%s: diff (-want +got)\n%s", u.Name, diff)
		}
		if r := is.Permissions.Response; u.Answers != (r != nil) || r != nil && (r.MaxMsgs != 1 || r.Expires != event.AnswerTime) {
			t.Errorf("%s: answers %+v", u.Name, r)
		}
	}
}

// accounts are what each account exports and imports, in words.
type accounts map[string][]string

func grantsOf(users []event.User) accounts {
	all := accounts{}
	for _, u := range users {
		all[event.AccountOf(u.Name)] = []string{"user " + u.Name}
	}
	all[event.AccountBus] = append(all[event.AccountBus], "jetstream")
	for _, g := range event.Grants(users) {
		kind, answers := "service ", ""
		if g.Facts {
			kind = "stream "
		}
		if g.Many {
			answers = ", many answers"
		}
		all[g.From] = append(all[g.From], kind+g.Subject+" to "+g.To+answers)
		all[g.To] = append(all[g.To], kind+g.Subject+" from "+g.From)
	}
	return all
}

// accountsOf reads the block accounts of a configuration.
func accountsOf(t *testing.T, file string) accounts {
	t.Helper()
	parsed, err := conf.ParseFile(file)
	require.NoError(t, err)
	raw, err := json.Marshal(parsed["accounts"])
	require.NoError(t, err)
	var read map[string]struct {
		JetStream string
		Users     []struct{ User string }
		Exports   []struct {
			Service, Stream string
			ResponseType    string `json:"response_type"`
			Accounts        []string
		}
		Imports []struct {
			Service, Stream struct{ Account, Subject string }
		}
	}
	require.NoError(t, json.Unmarshal(raw, &read))
	all := accounts{}
	for name, a := range read {
		if a.JetStream == "enabled" {
			all[name] = append(all[name], "jetstream")
		}
		for _, u := range a.Users {
			all[name] = append(all[name], "user "+u.User)
		}
		for _, e := range a.Exports {
			kind, answers := "service ", ""
			if e.Stream != "" {
				kind = "stream "
			}
			if e.ResponseType == "stream" {
				answers = ", many answers"
			}
			all[name] = append(all[name], kind+e.Service+e.Stream+" to "+strings.Join(e.Accounts, " and ")+answers)
		}
		for _, i := range a.Imports {
			kind, from := "service ", i.Service
			if i.Stream.Subject != "" {
				kind, from = "stream ", i.Stream
			}
			all[name] = append(all[name], kind+from.Subject+" from "+from.Account)
		}
	}
	return all
}

// KEDA looks for the consumers of an account, and for nothing else.
func TestAutoscaling_NATSAccount_HasStreams(t *testing.T) {
	t.Parallel()
	keda := merged(t, production, "workers: {edp: {autoscaling: {mode: keda, monitoringEndpoint: \"nats:8222\"}}}")
	account := func(objects []client.Object, name string) string {
		return kubetest.One[*scaledObject](t, objects, name).Spec.Triggers[0].Metadata["account"]
	}
	for values, want := range map[string]string{
		everything: event.AccountBus,
		keda:       event.AccountBus,
		merged(t, keda, "nats: {existingSecret: \"\"}"):                   "$G",
		merged(t, keda, "workers: {edp: {autoscaling: {account: OURS}}}"): "OURS",
	} {
		if got := account(rendered(t, values), "keb-worker-edp"); got != want {
			t.Errorf("the account is %q, want %q, with\n%s", got, want, values)
		}
	}
	for values, want := range map[string]string{"": event.AccountBus, "nats: {existingSecret: \"\"}\n": "$G"} {
		if got := account(renderedOf(t, workerDir, team+values+"autoscaling: {mode: keda}\n"), "keb-hello-world"); got != want {
			t.Errorf("%q: the account is %q, want %q", values, got, want)
		}
	}
}

// A cluster of NATS has several addresses, all of which every client gets, and no server of this release.
func TestNATS_Cluster_EveryClientKnowsAllServers(t *testing.T) {
	t.Parallel()
	const servers = "nats://nats-0.nats:4222,nats://nats-1.nats:4222,nats://nats-2.nats:4222"
	clients := map[string]bool{}
	for _, w := range workloads(rendered(t, merged(t, production, "nats: {url: \""+servers+"\"}"))) {
		if w.component() == "nats" {
			t.Errorf("%T is a server of this release", w.object)
		}
		for _, c := range w.pod.Spec.Containers {
			for _, e := range c.Env {
				if e.Name != "KEB_NATS_URL" {
					continue
				}
				clients[w.component()] = true
				if e.Value != servers {
					t.Errorf("%s reaches NATS at %q, want %q", w.component(), e.Value, servers)
				}
			}
		}
	}
	if !clients["broker"] || !clients["orchestrator"] || !clients["worker-edp"] {
		t.Errorf("only %v have an address of NATS", clients)
	}
}
