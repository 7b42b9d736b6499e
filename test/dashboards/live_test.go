package dashboards

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/kubetest"
	"github.com/kyma-project/keb/test/internal/harness"
)

// runtime is the cluster that BTP manager runs in.
var runtime = kubetest.Shared{Options: []kubetest.Option{kubetest.NoWebhooks}}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // that of the tests' own Kubernetes clients, which complain when there is none
	os.Exit(harness.Clean(runtime.Main(m)))
}

// limit is how long anything may take before the test gives up. It is generous: a busy machine must not fail a test.
const limit = 2 * time.Minute

// shownWithin is how soon a worker that is gone must be known everywhere.
const shownWithin = 15 * time.Second

// live skips a test that takes more than a minute, unless it was asked for.
func live(t *testing.T) {
	t.Helper()
	testkit.Suite(t, "dashboards")
}

// withoutData are the panels that this test cannot fill, by title, with the reason.
func withoutData() map[string]string {
	return map[string]string{
		"Limits":                        "keb up sets no limits; keb_limit is tested with the orchestrator",
		"Waiting for limits":            "as Limits",
		"Requests to webhooks":          "keb up has no webhooks; they are tested with the orchestrator",
		"Certificates":                  "keb up has no certificates; make e2e SUITE=tls looks at their metrics",
		"Lifetime left of certificates": "as Certificates",
	}
}

// someWorker are values of the variable worker; a panel of a worker must have data for one of them.
func someWorker() (choices []map[string]string) {
	for _, worker := range []string{"edp", "provisioner", "hello-world"} {
		choices = append(choices, map[string]string{"$worker": worker})
	}
	return choices
}

// neverSeen are what rules ask for and a system that works never has, as selectors without the time, with the reason.
func neverSeen() map[string]string {
	return map[string]string{
		`keb_osb_requests_total{code=~"5.."}`:              "the broker answers 5xx only when it cannot reach its database",
		`keb_tls_certificate_not_after_timestamp_seconds`:  "keb up has no certificates",
		`keb_tls_certificate_not_before_timestamp_seconds`: "keb up has no certificates",
	}
}

// TestLiveSystem_PanelsAndAlerts_Work runs the system through what an operator meets: operations that succeed, fail, are tried
// again, are cancelled, and wait for a worker that was killed.
func TestLiveSystem_PanelsAndAlerts_Work(t *testing.T) {
	t.Parallel()
	live(t)
	sys := harness.Start(t, harness.Options{Overlays: []string{"testdata/overlay"}})
	prometheus := startPrometheus(t, ruleFile, map[string]string{"keb": sys.OperatorAddr})

	began := time.Now()
	for _, phase := range []struct {
		what string
		do   func()
	}{
		{"a worker that is killed", func() { killAWorker(t, sys, prometheus) }},
		{"work", func() { work(t, sys, prometheus) }},
		{"a dead letter", func() { deadLetter(t, sys) }},
		{"panels", func() { awaitPanels(t, prometheus, boards(t), someWorker(), withoutData()) }},
		{"rules", func() { checkRules(t, prometheus) }},
	} {
		phase.do()
		t.Logf("%s: until %s", phase.what, time.Since(began).Round(time.Second))
	}
}

// killAWorker kills a worker while an operation is at its step, and wants to read of it everywhere in time.
func killAWorker(t *testing.T, sys *harness.System, p *server) {
	t.Helper()
	greeter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not now", http.StatusServiceUnavailable)
	}))
	t.Cleanup(greeter.Close)
	worker := harness.Spawn(t, harness.HelloWorldWorker(t), []string{
		"KEB_NATS_URL=" + sys.NATS(), "KEB_STAGE_KEYS_FILE=" + filepath.Join(sys.DataDir, "keys"), "HELLO_URL=" + greeter.URL + "/",
	})
	order := harness.Azure()
	order.PlanID = harness.PlanAWS
	order.Parameters = map[string]any{"name": "aws-e2e", "region": "eu-central-1"}
	id := sys.Provision(order)
	sys.Await(id, limit, "a try of Hello_World", func(op *harness.Operation) bool { return len(op.Outcomes("Hello_World")) > 0 })

	var expr string
	for _, a := range alerts(t) {
		if a.Alert == "KebStepWithoutWorker" {
			expr = a.Expr
		}
	}
	killed := time.Now()
	worker.Kill()
	places := map[string]func() bool{
		"the operator API": func() bool {
			return strings.HasPrefix(sys.Operation(id).WaitingFor, "no live worker hello-world for step Hello_World since ")
		},
		"keb stuck": func() bool {
			var list struct {
				Data []struct {
					Reason, Worker, Step string
					Since                time.Time
				}
			}
			run := sys.Run("stuck", "-o", "json")
			if run.ExitCode(limit) != 0 || json.Unmarshal([]byte(run.Output()), &list) != nil {
				return false
			}
			for _, g := range list.Data {
				if g.Reason == "no_worker" && g.Worker == "hello-world" && g.Step == "Hello_World" && !g.Since.IsZero() {
					return true
				}
			}
			return false
		},
		"the alert": func() bool {
			got, err := p.query(expr)
			return err == nil && len(got) == 1 && got[0].Metric["worker"] == "hello-world" && got[0].Metric["step"] == "Hello_World" && got[0].last() > 0
		},
	}
	took := map[string]time.Duration{}
	testkit.Eventually(t, limit, "word of the worker that was killed", func() bool {
		for name, knows := range places {
			if _, done := took[name]; !done && knows() {
				took[name] = time.Since(killed).Round(100 * time.Millisecond)
			}
		}
		return len(took) == len(places) || time.Since(killed) > 2*shownWithin
	})
	t.Logf("after the kill: %v", took)
	for name := range places {
		if after, ok := took[name]; !ok || after > shownWithin {
			t.Errorf("%s knew that the worker is gone after %s (known at all: %v), want %s", name, after, ok, shownWithin)
		}
	}
}

// work leaves a system in which something of each kind has happened, and something waits. What happens for the first time makes its
// series, and only what happens after the next scrape is an increase; so everything happens twice.
func work(t *testing.T, sys *harness.System, p *server) {
	t.Helper()
	var failed, removable []string
	var kept []*harness.Order
	for range 2 {
		lucky, removed := harness.Azure(), harness.Azure()
		for range 3 {
			unlucky := harness.Azure()
			sys.Fail("provisioner", unlucky.InstanceID)
			failed = append(failed, sys.Provision(unlucky))
		}
		orders := map[string]*harness.Order{sys.Provision(lucky): lucky, sys.Provision(removed): removed}
		for _, id := range failed {
			sys.AwaitEnd(id, "failed", limit)
		}
		for id, o := range orders {
			sys.PollEnd(o, id, osb.StateSucceeded, limit)
		}
		kept = append(kept, lucky)
		sys.PollEnd(lucky, sys.Update(lucky, osbclient.Change{Parameters: map[string]any{"machineType": "Standard_D8_v3"}}), osb.StateSucceeded, limit)
		bind(t, sys, lucky)
		id := sys.Deprovision(removed)
		sys.PollEnd(removed, id, osb.StateSucceeded, limit)
		removable = append(removable, id)
		if _, err := sys.Platform().Deprovision(t.Context(), removed.InstanceID, harness.ServiceID, removed.PlanID); harness.StatusOf(err) != harness.Gone {
			t.Errorf("the removal of what is gone: %v, want 410", err)
		}
		keb(t, sys, "upgrade", "cluster", "--target", "all", "--kubernetes-version", "1.31.4", "--wait")
		p.awaitScrape()
	}
	sys.Fail("provisioner", "")

	// Actions of operators, one that is done and one that is refused.
	action(t, sys, failed[0], "retry", http.StatusNoContent)
	action(t, sys, removable[0], "retry", http.StatusConflict)

	// An orchestration that does not get on.
	sys.Fault("reconciler", `{"timeout": true}`)
	keb(t, sys, "upgrade", "kyma", "--target", "all", "--parallel-workers", "1")

	// A system that is out: operations try one step again until it is back.
	sys.Fault("edp", `{"outage": true}`)
	for range 3 {
		waiting := sys.Provision(harness.Azure())
		sys.Await(waiting, limit, "a retry of EDP_Registration", func(op *harness.Operation) bool {
			return slices.Contains(op.Outcomes("EDP_Registration"), "retry")
		})
	}
	// Another operation of an instance that has one in progress waits for its turn.
	sys.Deprovision(kept[0])
}

func bind(t *testing.T, sys *harness.System, o *harness.Order) {
	t.Helper()
	_, err := sys.Platform().Bind(t.Context(), o.InstanceID, uuid.NewString(), osbclient.Bind{ServiceID: harness.ServiceID, PlanID: o.PlanID})
	require.NoError(t, err, "bind")
}

// keb runs a command with JSON output.
func keb(t *testing.T, sys *harness.System, args ...string) string {
	t.Helper()
	process := sys.Run(append(args, "-o", "json")...)
	if code := process.ExitCode(limit); code != 0 {
		t.Fatalf("keb %v ended with %d:\n%s", args, code, process.Output())
	}
	return process.Output()
}

// action carries out an action, and wants one of the statuses.
func action(t *testing.T, sys *harness.System, id, name string, want ...int) {
	t.Helper()
	response, err := sys.HTTP.Post("http://"+sys.OperatorAddr+"/operations/"+id+"/"+name, "application/json", strings.NewReader("{}"))
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	if !slices.Contains(want, response.StatusCode) {
		t.Errorf("%s %s: status %d, want %v", name, id, response.StatusCode, want)
	}
}

// deadLetter publishes an unreadable message.
func deadLetter(t *testing.T, sys *harness.System) {
	t.Helper()
	nc, err := nats.Connect(sys.NATS())
	require.NoError(t, err)
	defer nc.Close()
	require.NoError(t, nc.Publish("keb.request."+string(event.Provision), []byte("not an event")))
	require.NoError(t, nc.Flush())
}

// awaitPanels waits until every panel of the dashboards shows something, with one of the sets of variables, but for the exceptions.
func awaitPanels(t *testing.T, p *server, boards []board, choices []map[string]string, exceptions map[string]string) {
	t.Helper()
	missing := map[string][]string{}
	waiting := map[string]panel{}
	for _, b := range boards {
		for _, q := range b.Panels {
			if q.Type != "row" {
				waiting[b.Title+": "+q.Title] = q
			}
		}
	}
	all := len(waiting)
	deadline := time.Now().Add(limit)
	testkit.Eventually(t, 2*limit, "panels with data", func() bool {
		for name, q := range waiting {
			if missing[name] = p.shows(q, choices); len(missing[name]) == 0 {
				delete(waiting, name)
				delete(missing, name)
			}
		}
		for _, q := range waiting {
			if _, ok := exceptions[q.Title]; !ok && time.Now().Before(deadline) {
				return false
			}
		}
		return true
	})
	t.Logf("%d panels, %d with data", all, all-len(waiting))
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if reason, ok := exceptions[waiting[name].Title]; ok {
			t.Logf("%s has no data: %s", name, reason)
			delete(exceptions, waiting[name].Title)
			continue
		}
		t.Errorf("%s has no data for\n\t%s", name, strings.Join(missing[name], "\n\t"))
	}
	for title := range exceptions {
		t.Errorf("panel %q has data: it is no exception", title)
	}
}

// checkRules wants that Prometheus evaluates all rules, that what they ask for exists, and that of the alerts just those are on whose
// cause the test has made.
func checkRules(t *testing.T, p *server) {
	t.Helper()
	names, problems := p.evaluated()
	if len(names) != len(rules(t)) || len(problems) > 0 {
		t.Errorf("Prometheus has %d rules of %d: %v", len(names), len(rules(t)), problems)
	}
	exceptions := neverSeen()
	for _, r := range rules(t) {
		parsed, err := parser.ParseExpr(r.Expr)
		require.NoError(t, err)
		parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
			selector, ok := n.(*parser.VectorSelector)
			if !ok {
				return nil
			}
			text := selector.String()
			got, err := p.query(fmt.Sprintf("last_over_time(%s[10m])", text))
			if err != nil {
				t.Errorf("%s%s: %s: %v", r.Alert, r.Record, text, err)
			} else if _, never := exceptions[text]; (len(got) == 0) != never {
				t.Errorf("%s%s: %d series of the last minutes are %s, expected never to be: %v", r.Alert, r.Record, len(got), text, never)
			}
			return nil
		})
	}
	// Stuck is what an orchestration looks like whose operations are too quick for it to have got on for six hours.
	want := []string{"KebDeadLetters", "KebExternalBreakerOpen", "KebExternalSystemErrors", "KebOperationsFailing", "KebStepWithoutWorker", "KebWorkerMissing"}
	may := append(want, "KebOrchestrationStuck", "KebStepFailing")
	var on []string
	testkit.Eventually(t, limit, "the alerts whose causes are there", func() bool {
		on = nil
		for _, a := range alerts(t) {
			got, err := p.query(a.Expr)
			require.NoErrorf(t, err, "%s", a.Alert)
			if len(got) > 0 {
				on = append(on, a.Alert)
			}
		}
		return !slices.ContainsFunc(want, func(name string) bool { return !slices.Contains(on, name) }) || time.Since(p.start) > 2*limit
	})
	t.Logf("alerts: %v", on)
	for _, name := range want {
		if !slices.Contains(on, name) {
			t.Errorf("%s is not on, and its cause is there", name)
		}
	}
	for _, name := range on {
		if !slices.Contains(may, name) {
			t.Errorf("%s is on without a cause", name)
		}
	}
}

// TestRunbooks_Commands_Exist asks keb for help on every command line of the runbooks: an unknown command or flag is an error.
func TestRunbooks_Commands_Exist(t *testing.T) {
	t.Parallel()
	live(t)
	text, err := os.ReadFile(runbook)
	require.NoError(t, err)
	lines := map[string]bool{}
	for _, found := range regexp.MustCompile("(?m)^(keb .*)$|`(keb [^`]+)`").FindAllStringSubmatch(string(text), -1) {
		line, _, _ := strings.Cut(found[1]+found[2], "  #")
		lines[strings.TrimSpace(line)] = true
	}
	if len(lines) < 15 {
		t.Errorf("only %d command lines", len(lines))
	}
	for line := range lines {
		words := regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(line, -1)[1:]
		for i, word := range words {
			words[i] = strings.Trim(word, `"`)
		}
		help := harness.Spawn(t, harness.Keb(t), nil, append(words, "--help")...)
		if code := help.ExitCode(limit); code != 0 {
			t.Errorf("%s: %s", line, help.Output())
		}
	}
}
