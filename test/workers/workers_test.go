// Package workers runs workers against the contract of the bus: the example, all that come with KEB, and one in another language.
package workers

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-project/keb/landscape"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker/contract"
	"github.com/kyma-project/keb/libs/worker/contract/contracttest"
	stepworkers "github.com/kyma-project/keb/services/step-workers"
	"github.com/kyma-project/keb/test/internal/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(harness.Tests{M: m}) }

const limit = 90 * time.Second

// slowChecks need a step that takes some seconds.
var slowChecks = []string{"long-step", "time-limit", "cancel", "concurrency"}

// noFailure fails the test unless all checks passed but the named ones, which may be skipped.
func noFailure(t *testing.T, report *contract.Report, skipped ...string) {
	t.Helper()
	for _, f := range report.Findings {
		if f.Status == contract.Failed || f.Status == contract.Skipped && !slices.Contains(skipped, f.Check) {
			t.Errorf("%s: %s: %s", f.Check, f.Status, strings.Join(f.Problems, "; "))
		}
	}
}

const greeterToken = "a-token-that-is-secret"

// greet answers as the greeter that Hello_World calls.
func greet(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, `{"data": "hello", "token": %q}`, greeterToken)
}

func TestContract_ExampleWorker_Passes(t *testing.T) {
	t.Parallel()
	greeter := httptest.NewServer(http.HandlerFunc(greet))
	t.Cleanup(greeter.Close)
	report := contracttest.Check(t, contract.Config{
		Worker: "hello-world", Starter: contract.Command("env", "HELLO_URL="+greeter.URL+"/", harness.HelloWorldWorker(t)),
		AckWait: 2 * time.Second, Commands: 100, Patience: limit,
		Cases: []contract.Case{{
			Name: "saves what the greeter says", Step: "Hello_World",
			Expect: contract.Expectation{Outcome: event.OutcomeSucceeded, Details: map[string]any{"helloWorlds": "hello"}},
		}, {
			Name: "says hello once more", Step: "Hello_World", Cleanup: true,
		}},
	})
	noFailure(t, report, slowChecks...)
}

func TestContract_EachWorker_Passes(t *testing.T) {
	testkit.Suite(t, "workers")
	l, err := landscape.New(landscape.Config{}, landscape.Deps{})
	require.NoError(t, err)
	server := httptest.NewServer(l.Handler())
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		_ = l.Close()
	})
	services, err := stepworkers.All(server.URL, stepworkers.Options{Poll: time.Second})
	require.NoError(t, err)
	for _, s := range services {
		if len(s.Steps) == 0 {
			continue // it answers questions
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			report := contracttest.Steps(t, contract.Config{Worker: s.Name, Commands: 100, Patience: limit}, s.Steps...)
			// There are no cases, and the worker has no process of its own.
			noFailure(t, report, slices.Concat(slowChecks, []string{"cases", "cleanup", "memory", "frozen"})...)
			fmt.Println(report.Summary())
		})
	}
}

const nodeWorker = "../../examples/node-worker"

// node is the installed example in JavaScript.
func node(t *testing.T) (script string) {
	t.Helper()
	testkit.Suite(t, "workers")
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("make e2e SUITE=workers runs this test where Node 20 or newer and npm are installed")
	}
	script, err := filepath.Abs(nodeWorker + "/worker.mjs")
	require.NoError(t, err)
	if _, err := os.Stat(nodeWorker + "/node_modules"); err != nil {
		t.Fatal("the packages of the worker are not installed: make e2e SUITE=workers installs them")
	}
	return script
}

func TestContract_JavaScriptWorker_Passes(t *testing.T) {
	t.Parallel()
	script := node(t)
	greeter := httptest.NewServer(http.HandlerFunc(greet))
	t.Cleanup(greeter.Close)
	junit := filepath.Join(t.TempDir(), "report.xml")
	report := passes(t, []string{"HELLO_URL=" + greeter.URL + "/"}, "--junit", junit, "--worker", "node-greeter", "--case", nodeWorker+"/cases.yaml",
		"--", "node", script)
	raw, err := os.ReadFile(junit)
	require.NoError(t, err)
	var suite struct {
		Tests int `xml:"tests,attr"`
		Cases []struct {
			Name string `xml:"name,attr"`
		} `xml:"testcase"`
	}
	if err := xml.Unmarshal(raw, &suite); err != nil || suite.Tests != len(report.Findings) || len(suite.Cases) != suite.Tests {
		t.Errorf("the JUnit report: %v, %d tests", err, suite.Tests)
	}
}

// The values in the stage memory were sealed by the SDK.
func TestContract_JavaScriptSecrets_StayInside(t *testing.T) {
	t.Parallel()
	node(t)
	const tests = "../../clients/node/test/"
	out, err := exec.CommandContext(t.Context(), harness.Keb(t), "worker", "check", "--worker", "node-secrets", "--case", tests+"secrets-cases.yaml",
		"--check", "registration,answers,cases,repeated,stage-lost,schema,details,errors,secrets,permissions", "--", "node", tests+"secrets-worker.js").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestJavaScriptWorker_KilledInStep_AnotherFinishes(t *testing.T) {
	t.Parallel()
	script := node(t)
	path, err := exec.LookPath("node")
	require.NoError(t, err)
	killedInStep{
		overlay: nodeWorker + "/overlay", steps: []string{"Node_Greeting", "Hello_World"}, program: path, script: script,
		metrics: []string{
			`keb_worker_steps_total{worker="node-greeter",step="Hello_World",outcome="succeeded"} 1`,
			`keb_worker_step_duration_seconds_count{worker="node-greeter",step="Hello_World"} 1`,
			`keb_worker_commands_ignored_total{worker="node-greeter",reason="quarantined"} 0`,
		},
	}.run(t)
}

// passes runs keb worker check, and wants every check to pass.
func passes(t *testing.T, env []string, args ...string) *contract.Report {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), harness.Keb(t), append([]string{"worker", "check", "-o", "json"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	var printed strings.Builder
	cmd.Stderr = &printed
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, printed.String())
	}
	var report contract.Report
	require.NoError(t, json.Unmarshal(out, &report))
	fmt.Println(report.Summary())
	if n := report.Count(contract.Passed); n != len(contract.Names()) {
		t.Errorf("%d checks passed, want %d", n, len(contract.Names()))
	}
	return &report
}
