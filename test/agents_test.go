package test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/osb/osbclient"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/test/internal/harness"
)

// TestAgent_PlantedIncidents_AreSolvedByReading plants twelve incidents in one system. Each begins with the text of its alert, and is solved
// with tools of keb mcp that read, called as an agent would: each call follows from the alert or from an earlier answer. The client is written
// by hand, so that not only the SDK's own client understands the server.
func TestAgent_PlantedIncidents_AreSolvedByReading(t *testing.T) {
	t.Parallel()
	sys := harness.Start(t, harness.Options{Overlays: []string{"testdata/incidents"}})
	plant(t, sys)
	a := startAgent(t, sys)
	for name, solve := range incidents {
		before, calls := a.bytes, a.calls
		solve(t, a)
		if calls, size := a.calls-calls, a.bytes-before; calls > 4 || size > 32<<10 {
			t.Errorf("%s: %d calls with %d bytes; at most 4 and 32 kB", name, calls, size)
		} else {
			t.Logf("%s: %d calls, %d bytes", name, calls, size)
		}
	}
	if got := harness.Get[struct{ TotalCount int }](sys, "http://"+sys.OperatorAddr+"/actions?name=keb+mcp").TotalCount; got != 0 {
		t.Errorf("reading left %d actions", got)
	}
}

// plant makes the incidents, and waits until each shows.
func plant(t *testing.T, sys *harness.System) {
	t.Helper()
	startWorkers(t, sys)
	named := func(o *harness.Order, name string) *harness.Order {
		o.Parameters["name"] = name
		return o
	}
	put := func(path, body string) {
		t.Helper()
		method := http.MethodPut
		if path == "/holds" {
			method = http.MethodPost
		}
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+sys.OperatorAddr+path, strings.NewReader(body))
		require.NoError(t, err)
		response, err := sys.HTTP.Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Lessf(t, response.StatusCode, 300, "%s %s: %s", method, path, text)
	}
	blocked, upgraded := named(harness.Azure(), "blocked"), named(harness.Azure(), "upgraded")
	healthy := []string{sys.Provision(blocked), sys.Provision(upgraded)}
	put("/limits", `{"document": "limits: [{name: trials, scope: {plan: trial}, operations: 1}]"}`)
	put("/holds", `{"scope": {"plan": "aws"}, "reason": "AWS maintenance of Saturday, ask Jane", "by": "jane"}`)
	aws := named(harness.Azure(), "held")
	aws.PlanID, aws.Parameters = harness.PlanAWS, map[string]any{"name": "held", "region": "eu-central-1"}

	reasons := map[string]string{
		sys.Provision(named(harness.Azure(), "hangs")): "no_answer", sys.Provision(named(harness.Trial(), "ghost")): "no_worker",
		sys.Provision(named(harness.Azure(), "renamed")): "no_worker", sys.Provision(named(harness.Azure(), "vault")): "failing", sys.Provision(aws): "held",
	}
	panics := sys.Provision(named(harness.Azure(), "panics"))
	nc, err := nats.Connect(sys.NATS())
	require.NoError(t, err)
	defer nc.Close()
	require.NoError(t, nc.Publish("keb.request.provision", []byte("not an event")))
	require.NoError(t, nc.Flush())
	reasons[sys.Provision(named(harness.Trial(), "second"))] = "limited"
	for _, id := range healthy {
		sys.AwaitEnd(id, "succeeded", limit)
	}
	sys.Fault("edp", `{"outage": true}`)
	reasons[sys.Provision(named(harness.Azure(), "outage"))] = "failing"
	reasons[sys.Update(blocked, osbclient.Change{Parameters: map[string]any{"machineType": "Standard_D8_v3"}})] = "no_worker"
	for _, args := range [][]string{
		{"upgrade", "kyma", "--target", "instance-id=" + upgraded.InstanceID}, {"upgrade", "cluster", "--target", "instance-id=" + blocked.InstanceID},
	} {
		run := sys.Run(args...)
		require.Zerof(t, run.ExitCode(limit), "%v: %s", args, run.Output())
	}
	sys.AwaitEnd(panics, "failed", limit)
	for id, reason := range reasons {
		testkit.Eventually(t, limit, "operation "+id+" to wait: "+reason, func() bool { return waiting(sys, id).Reason == reason })
	}
	// The reason no_worker does not show whether a worker has appeared that lacks the step.
	testkit.Eventually(t, limit, "the worker renamed to appear", func() bool {
		for _, w := range harness.Get[struct{ Data []liveWorker }](sys, "http://"+sys.OperatorAddr+"/workers").Data {
			if w.Name == "renamed" && w.Alive {
				return true
			}
		}
		return false
	})
	testkit.Eventually(t, limit, "the upgrades", func() bool {
		list := harness.Get[struct {
			Data []struct {
				Type, State string
				Waiting     waits
			}
		}](sys, "http://"+sys.OperatorAddr+"/operations?type=upgradeKyma,upgradeCluster")
		done := 0
		for _, o := range list.Data {
			if o.Type == "upgradeKyma" && o.State == "failed" || o.Waiting.Reason == "instance_busy" {
				done++
			}
		}
		return done == 2
	})
}

// startWorkers starts the workers of the overlay, but for ghost.
func startWorkers(t *testing.T, sys *harness.System) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(sys.DataDir, "keys"))
	require.NoError(t, err)
	keys, err := seal.ParseKeyring(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	hanging := make(chan struct{})
	for name, steps := range map[string][]worker.Step{
		// A step that ignores the end of its context.
		"hangs":   {stepFunc{"Hangs", func(op worker.Operation) (worker.Operation, time.Duration, error) { <-hanging; return op, 0, nil }}},
		"renamed": {stepFunc{"Old_Step", func(op worker.Operation) (worker.Operation, time.Duration, error) { return op, 0, nil }}},
		"team": {
			stepFunc{"Vault_Login", func(op worker.Operation) (worker.Operation, time.Duration, error) {
				return worker.Retry(op, time.Minute, &worker.Error{Component: "vault", Reason: "err_http_status_code", Message: "POST /v1/auth/login: status 401: invalid_client: the secret of keb has expired"})
			}},
			stepFunc{"Panics", func(worker.Operation) (worker.Operation, time.Duration, error) {
				panic("assignment to entry in nil map")
			}},
			stepFunc{"Module_Registry", func(op worker.Operation) (worker.Operation, time.Duration, error) {
				return worker.Fail(op, &worker.Error{Component: "module-registry", Reason: "err_not_found", Message: "module istio has no version for the channel fast"})
			}},
		},
	} {
		b, err := bus.Connect(t.Context(), bus.Config{URL: sys.NATS(), Name: name}, bus.Deps{Log: log})
		require.NoError(t, err)
		w, err := worker.New(worker.Config{Name: name, Version: "1.0.0", DrainTimeout: time.Second}, worker.Deps{
			Bus: b, StageMemory: stagemem.New(b.JetStream(), keys), Log: log,
		}, steps...)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			<-ended
			b.Close()
		})
	}
	t.Cleanup(func() { close(hanging) })
}

type stepFunc struct {
	name string
	run  func(op worker.Operation) (worker.Operation, time.Duration, error)
}

func (s stepFunc) Name() string { return s.name }

func (s stepFunc) Run(_ context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	return s.run(op)
}

// agent calls the tools of keb mcp with lines of JSON-RPC.
type agent struct {
	t            *testing.T
	in           io.WriteCloser
	out          *bufio.Reader
	id           int
	calls, bytes int
	// tools are the names of the tools.
	tools []string
	// rules are the summaries and descriptions of the alerts, by name.
	rules map[string]string
}

func startAgent(t *testing.T, sys *harness.System) *agent {
	t.Helper()
	cmd := exec.Command(harness.Keb(t), "mcp") // ends with its stdin
	cmd.Env = append(os.Environ(), sys.Env()...)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("keb mcp: %v", err)
		}
	})
	a := &agent{t: t, in: in, out: bufio.NewReaderSize(out, 1<<20), rules: alertTexts(t)}
	var server struct {
		Instructions string
		ServerInfo   struct{ Name string }
	}
	a.request("initialize", map[string]any{
		"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "test", "version": "1"},
	}, &server)
	if server.ServerInfo.Name != "keb" || !strings.Contains(server.Instructions, "no_answer") {
		t.Errorf("the server introduces itself with %+v", server)
	}
	_, err = io.WriteString(in, `{"jsonrpc": "2.0", "method": "notifications/initialized"}`+"\n")
	require.NoError(t, err)
	var list struct{ Tools []struct{ Name string } }
	a.request("tools/list", map[string]any{}, &list)
	for _, tool := range list.Tools {
		a.tools = append(a.tools, tool.Name)
	}
	return a
}

// request sends a request and reads its answer.
func (a *agent) request(method string, params, into any) {
	a.t.Helper()
	a.id++
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": a.id, "method": method, "params": params})
	require.NoError(a.t, err)
	_, err = a.in.Write(append(line, '\n'))
	require.NoError(a.t, err)
	for {
		text, err := a.out.ReadBytes('\n')
		require.NoErrorf(a.t, err, "%s: no answer", method)
		var answer struct {
			ID     int
			Error  json.RawMessage
			Result json.RawMessage
		}
		require.NoErrorf(a.t, json.Unmarshal(text, &answer), "%s", text)
		if answer.ID != a.id {
			continue // a notification
		}
		require.Emptyf(a.t, answer.Error, "%s %s", method, line)
		require.NoError(a.t, json.Unmarshal(answer.Result, into))
		return
	}
}

// object is a decoded answer.
type object map[string]any

// call calls a tool that reads.
func (a *agent) call(tool string, arguments object) object {
	a.t.Helper()
	if !slices.Contains(a.tools, tool) {
		a.t.Fatalf("there is no tool %s: %v", tool, a.tools)
	}
	var result struct {
		IsError bool
		Content []struct{ Text string }
	}
	a.request("tools/call", object{"name": tool, "arguments": arguments}, &result)
	require.Len(a.t, result.Content, 1)
	text := result.Content[0].Text
	if result.IsError {
		a.t.Fatalf("%s %v: %s", tool, arguments, text)
	}
	a.calls++
	a.bytes += len(text)
	var out object
	require.NoErrorf(a.t, json.Unmarshal([]byte(text), &out), "%s: %s", tool, text)
	return out
}

// at returns the value at a path of members and indexes, such as data.0.error.message; "" if there is none.
func (o object) at(path string) string {
	var v any = map[string]any(o)
	for part := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[part]
		case []any:
			i := 0
			if _, err := fmt.Sscan(part, &i); err != nil || i >= len(at) {
				return ""
			}
			v = at[i]
		default:
			return ""
		}
	}
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// where returns the first object of the list data whose member has a value.
func (o object) where(list, path, value string) object {
	all, _ := o[list].([]any)
	for _, e := range all {
		row, _ := e.(map[string]any)
		if object(row).at(path) == value {
			return row
		}
	}
	return object{}
}

// want compares values of an answer with regular expressions.
func (a *agent) want(what string, o object, values ...string) {
	a.t.Helper()
	for i := 0; i < len(values); i += 2 {
		if got := o.at(values[i]); !regexp.MustCompile(values[i+1]).MatchString(got) {
			text, err := json.Marshal(o)
			a.t.Errorf("%s: %s is %q, want %s: %.1500s %v", what, values[i], got, values[i+1], text, errors.Join(err))
		}
	}
}

// alert returns the text of an alert with its labels, as it reaches a person.
func (a *agent) alert(name string, labels ...string) string {
	a.t.Helper()
	text, ok := a.rules[name]
	if !ok {
		a.t.Fatalf("there is no alert %s", name)
	}
	for i := 0; i < len(labels); i += 2 {
		before := text
		if text = strings.ReplaceAll(text, "{{ $labels."+labels[i]+" }}", labels[i+1]); text == before {
			a.t.Fatalf("%s does not name the %s: %s", name, labels[i], text)
		}
	}
	return text
}

func alertTexts(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../deploy/helm/keb/alerts/keb.yaml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations struct{ Summary, Description string }
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	texts := map[string]string{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			texts[r.Alert] = r.Annotations.Summary + "\n" + r.Annotations.Description
		}
	}
	return texts
}

// word returns the first group of a pattern in the text of an alert.
func word(t *testing.T, text, pattern string) string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("%q does not have %s", text, pattern)
	}
	return found[1]
}

// incidents are solved from the text of their alert to the cause.
var incidents = map[string]func(t *testing.T, a *agent){
	"a worker hangs": func(t *testing.T, a *agent) {
		text := a.alert("KebStepNoAnswer", "worker", "hangs", "step", "Hangs")
		stuck := a.call("stuck", object{"step": word(t, text, `step (\w+)`)})
		a.want("stuck", stuck, "count", "1", "data.0.reason", "no_answer", "data.0.error.message", "has not answered within 1s")
		a.want("worker", a.call("workers", object{"worker": stuck.at("data.0.worker")}), "data.0.alive", "true", "data.0.missingSteps", "^$")
		op := a.call("operation", object{"id": stuck.at("data.0.operations.0")})
		a.want("operation", op, "waiting.reason", "no_answer", "budget.onTimeout", "fail", "budget.limit", "retry", "runtimeName", "hangs")
	},
	"a worker is missing": func(t *testing.T, a *agent) {
		text := a.alert("KebStepWithoutWorker", "worker", "ghost", "step", "Ghost")
		stuck := a.call("stuck", object{"step": word(t, text, `Step (\w+) waits`)})
		a.want("stuck", stuck, "data.0.reason", "no_worker", "data.0.count", "1", "data.0.text", "ghost")
		a.want("worker", a.call("workers", object{"worker": word(t, text, `worker (\w+)\.`)}),
			"data.0.alive", "false", "data.0.replicas", "^0$", "data.0.lastSeen", "^$", "data.0.missingSteps", "Ghost")
	},
	"an old version of a worker runs": func(t *testing.T, a *agent) {
		text := a.alert("KebStepWithoutWorker", "worker", "renamed", "step", "New_Step")
		a.want("worker", a.call("workers", object{"worker": word(t, text, `worker (\w+)\.`)}),
			"data.0.alive", "true", "data.0.versions.0", "1.0.0", "data.0.steps.0", "Old_Step", "data.0.missingSteps.0", "New_Step")
	},
	"an external system is away": func(t *testing.T, a *agent) {
		text := a.alert("KebExternalBreakerOpen", "system", "edp")
		system := word(t, text, `Calls to (\w+)`)
		list := a.call("operations", object{"system": system, "waiting": []string{"failing"}})
		a.want("operations", list, "totalCount", "1", "data.0.step", ".", "data.0.error.component", "edp", "data.0.error.message", "503", "data.0.waiting.step", "EDP_Registration")
		a.want("metrics", a.call("metrics", object{"name": "external_requests_total", "labels": object{"system": system}}), "series", `code="503"`)
	},
	"credentials are wrong": func(t *testing.T, a *agent) {
		text := a.alert("KebStepRetriesForLong", "worker", "team", "step", "Vault_Login")
		stuck := a.call("stuck", object{"step": word(t, text, `Step (\w+) of`), "worker": word(t, text, `worker (\w+) has`)})
		a.want("stuck", stuck, "data.0.reason", "failing", "data.0.error.component", "vault", "data.0.error.message", "401: invalid_client: the secret of keb has expired")
	},
	"a limit is reached": func(t *testing.T, a *agent) {
		text := a.alert("KebOperationsWaitForTheirTurn", "type", "provision")
		list := a.call("operations", object{"type": []string{word(t, text, `type (\w+) do`)}, "state": []string{"pending"}})
		limited := list.where("data", "waiting.reason", "limited")
		a.want("operation", limited, "plan", "trial", "waiting.limit", "trials")
		limits := a.call("limits", object{})
		a.want("limit", limits.where("limits", "name", limited.at("waiting.limit")), "operations", "^1$", "scope.plan.0", "trial")
		a.want("operation in front", a.call("operations", object{"plan": []string{limited.at("plan")}, "state": []string{"in progress"}}),
			"totalCount", "^1$", "data.0.waiting.reason", "no_worker", "data.0.waiting.worker", "ghost")
	},
	"a hold was forgotten": func(t *testing.T, a *agent) {
		text := a.alert("KebOperationsHeld", "type", "provision")
		list := a.call("operations", object{"type": []string{word(t, text, `type (\w+) are`)}, "waiting": []string{"held"}})
		hold := a.call("holds", object{}).where("data", "id", list.at("data.0.waiting.hold"))
		a.want("hold", hold, "createdBy", "jane", "createdAt", "Z$", "reason", "AWS maintenance of Saturday, ask Jane", "scope.plan", "aws", "operations", "^1$", "until", "^$")
		a.want("audit", a.call("audit", object{"target": hold.at("id")}), "data.0.name", "jane", "data.0.action", "create_hold", "data.0.outcome", "done")
	},
	"another operation blocks the instance": func(t *testing.T, a *agent) {
		text := a.alert("KebOperationsWaitForTheirTurn", "type", "upgradeCluster")
		stuck := a.call("stuck", object{"reason": "instance_busy"}).where("data", "type", word(t, text, `type (\w+) do`))
		blocker := a.call("operation", object{"id": stuck.at("blockedBy.0")})
		a.want("operation in front", blocker, "type", "update", "waiting.reason", "no_worker", "waiting.step", "Ghost_Update", "waiting.worker", "ghost", "runtimeName", "blocked")
	},
	"an orchestration fails": func(t *testing.T, a *agent) {
		text := a.alert("KebOperationsFailing", "type", "upgradeKyma")
		one := a.call("orchestrations", object{}).where("data", "type", word(t, text, `type (\w+) fail`))
		detail := a.call("orchestrations", object{"id": one.at("orchestrationID"), "state": "failed"})
		a.want("orchestration", detail, "operationStats.failed", "^1$", "operations.data.0.state", "failed")
		op := a.call("operation", object{"id": detail.at("operations.data.0.operationID")})
		a.want("operation", op, "error.component", "module-registry", "error.message", "module istio has no version for the channel fast", "step", "Module_Registry")
	},
	"a step panics": func(t *testing.T, a *agent) {
		text := a.alert("KebWorkerPanics", "worker", "team")
		list := a.call("operations", object{"state": []string{"failed"}, "worker": word(t, text, `worker (\w+) panics`), "type": []string{"provision"}})
		a.want("operations", list, "totalCount", "^1$", "data.0.error.message", "nil map", "data.0.step", "Panics")
	},
	"a message cannot be read": func(t *testing.T, a *agent) {
		text := a.alert("KebDeadLetters", "stream", "KEB_REQUESTS")
		letter := a.call("dead_letters", object{}).where("data", "stream", word(t, text, `Messages of (\w+) cannot`))
		a.want("dead letter", letter, "subject", "keb.request.provision", "reason", ".", "redrive", ".")
		a.want("payload", a.call("dead_letters", object{"id": letter.at("id")}), "payload", "not an event")
	},
	"many operations fail": func(_ *testing.T, a *agent) {
		groups := a.call("errors", object{})
		a.want("errors", groups, "failed.operations", "^2$")
		var found []string
		for i := range 2 {
			found = append(found, groups.at(fmt.Sprintf("failed.groups.%d.error.message", i)))
		}
		if all := strings.Join(found, "\n"); !strings.Contains(all, "nil map") || !strings.Contains(all, "istio") {
			a.t.Errorf("the groups of failed operations are %q", found)
		}
	},
}
