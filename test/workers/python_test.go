package workers

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

const pythonLibrary = "../../clients/python"

// python is the interpreter in KEB_PYTHON or PATH, if it has the modules. Its environment finds the library.
func python(t *testing.T, modules ...string) (interpreter string, env []string) {
	t.Helper()
	interpreter = os.Getenv("KEB_PYTHON")
	if interpreter == "" {
		interpreter = "python3"
	}
	library, err := filepath.Abs(pythonLibrary)
	require.NoError(t, err)
	needed := "import sys; assert sys.version_info >= (3, 11), 'Python ' + sys.version\n" + strings.Join(append([]string{""}, modules...), "\nimport ")
	if out, err := exec.CommandContext(t.Context(), interpreter, "-c", needed).CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		t.Skipf("needs Python 3.11 or newer with %q, in PATH or KEB_PYTHON: %v: %s", modules, err, lines[len(lines)-1])
	}
	return interpreter, []string{"PYTHONPATH=" + library + string(os.PathListSeparator) + os.Getenv("PYTHONPATH"), "PYTHONDONTWRITEBYTECODE=1"}
}

// pythonBus is python with all that a worker needs.
func pythonBus(t *testing.T) (interpreter string, env []string) {
	t.Helper()
	testkit.Suite(t, "workers")
	return python(t, "nats", "cryptography", "prometheus_client", "aiohttp")
}

func TestPythonLibrary_UnitTests_Pass(t *testing.T) {
	t.Parallel()
	interpreter, env := python(t)
	cmd := exec.CommandContext(t.Context(), interpreter, "-m", "unittest", "discover", "-s", "tests")
	cmd.Dir, cmd.Env = pythonLibrary, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	fmt.Println("Python:", strings.Join(lines[max(0, len(lines)-3):], " "))
}

func TestContract_PythonWorker_Passes(t *testing.T) {
	t.Parallel()
	interpreter, env := pythonBus(t)
	passes(t, env, "--worker", "python-check", "--case", pythonLibrary+"/tests/cases.yaml", "--", interpreter, pythonLibrary+"/tests/check_worker.py")
}

func TestPythonWorker_KilledInStep_AnotherFinishes(t *testing.T) {
	t.Parallel()
	interpreter, env := pythonBus(t)
	killedInStep{
		overlay: "../../examples/hello-world-worker/overlay", steps: []string{"Hello_World"},
		program: interpreter, script: pythonLibrary + "/examples/hello_world/worker.py", env: env,
		metrics: []string{
			`keb_worker_steps_total{outcome="succeeded",step="Hello_World",worker="hello-world"} 1.0`,
			`keb_worker_step_duration_seconds_count{step="Hello_World",worker="hello-world"} 1.0`,
			`keb_worker_commands_ignored_total{reason="quarantined",worker="hello-world"} 0.0`,
		},
	}.run(t)
}

// killedInStep kills a worker while its step waits for the greeter. A second worker then finishes the operation.
type killedInStep struct {
	overlay         string
	program, script string
	env             []string
	// steps are those of the worker, and metrics the lines of the second one.
	steps, metrics []string
}

func (k killedInStep) run(t *testing.T) {
	t.Helper()
	asked, free := make(chan struct{}), make(chan struct{})
	var requests atomic.Int32
	greeter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			close(asked)
			<-free
		}
		greet(w, r)
	}))
	t.Cleanup(greeter.Close)
	sys := harness.Start(t, harness.Options{Overlays: []string{k.overlay}})
	id := sys.Provision(harness.Azure())
	sys.Await(id, limit, "a wait for a worker", func(op *harness.Operation) bool {
		return strings.Contains(op.WaitingFor, "no live worker") && strings.Contains(op.WaitingFor, "for step "+k.steps[0])
	})
	metrics := testkit.Addr(t)
	env := append(k.env, "KEB_NATS_URL="+sys.NATS(), "KEB_STAGE_KEYS_FILE="+filepath.Join(sys.DataDir, "keys"), "HELLO_URL="+greeter.URL+"/",
		"KEB_METRICS_ADDR="+metrics)
	first := harness.Spawn(t, k.program, env, k.script)
	select {
	case <-asked:
	case <-t.Context().Done():
		t.Fatalf("the step did not run:\n%s", first.Output())
	}
	first.Kill()
	close(free)
	second := harness.Spawn(t, k.program, env, k.script)
	op := sys.AwaitEnd(id, "succeeded", limit)
	for _, step := range k.steps {
		if done := op.At(t, step); done.State != "succeeded" {
			t.Errorf("%s is %+v", step, done)
		}
	}
	if n := requests.Load(); n < 2 {
		t.Errorf("the greeter was asked %d times, want at least 2", n)
	}
	checkMetrics(t, "http://"+metrics, k.metrics...)
	second.Stop()
	if code := second.ExitCode(limit); code != 0 {
		t.Errorf("the worker ended with %d:\n%s", code, second.Output())
	}
	if strings.Contains(first.Output()+second.Output(), greeterToken) {
		t.Error("the worker printed the token of the greeter")
	}
	fmt.Printf("%s: operation %s succeeded, although the worker was killed in %s\n", t.Name(), id, k.steps[0])
}

// checkMetrics lets promtool read the metrics of a worker, and looks for the wanted lines.
func checkMetrics(t *testing.T, url string, wanted ...string) {
	t.Helper()
	get := func(path string) string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer func() { _ = response.Body.Close() }() // the body was read
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode, string(body))
		return string(body)
	}
	require.JSONEq(t, `{"status":"ok"}`, get("/healthz"))
	require.JSONEq(t, `{"status":"ok","checks":{"nats":"ok"}}`, get("/readyz"))
	text := get("/metrics")
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s:\n%s", want, text)
		}
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Log("the metrics are not checked: there is no promtool")
		return
	}
	check := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	check.Stdin = strings.NewReader(text)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
