package test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

func TestStuck_StoppedWorker_IsShownEverywhere(t *testing.T) {
	t.Parallel()
	const worker, step = "hello-world", "Hello_World"
	greeter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, `{"data": "hello", "token": "token"}`)
	}))
	t.Cleanup(greeter.Close)
	sys := harness.Start(t, harness.Options{Overlays: []string{"../examples/hello-world-worker/overlay"}})
	start := func() *harness.Process {
		return harness.Spawn(t, harness.HelloWorldWorker(t), []string{
			"KEB_NATS_URL=" + sys.NATS(), "KEB_STAGE_KEYS_FILE=" + filepath.Join(sys.DataDir, "keys"), "HELLO_URL=" + greeter.URL + "/",
		})
	}
	running := start()
	sys.AwaitEnd(sys.Provision(harness.Azure()), "succeeded", limit)

	running.Kill()
	stopped := time.Now()
	id := sys.Provision(harness.Azure())
	sys.Await(id, limit, "its arrival", func(*harness.Operation) bool { return true })
	told := func(where string, ok func() bool) {
		t.Helper()
		testkit.Eventually(t, limit, where+" to name the worker", ok)
		t.Logf("%s shows it %.1f s after the worker was killed", where, time.Since(stopped).Seconds())
	}
	told("the operation", func() bool {
		w := waiting(sys, id)
		return w.Reason == "no_worker" && w.Worker == worker && w.Step == step && !w.Since.IsZero()
	})
	since := waiting(sys, id).Since
	told("the list of what is stuck", func() bool {
		for _, g := range harness.Get[struct{ Data []stuck }](sys, "http://"+sys.OperatorAddr+"/stuck").Data {
			if g.Reason == "no_worker" && g.Worker == worker && g.Step == step && g.Count == 1 && g.Since.Equal(since) {
				return true
			}
		}
		return false
	})
	told("the list of workers", func() bool {
		for _, w := range harness.Get[struct{ Data []liveWorker }](sys, "http://"+sys.OperatorAddr+"/workers").Data {
			if w.Name == worker && !w.Alive && len(w.MissingSteps) == 1 && w.MissingSteps[0] == step && w.OperationsWaiting == 1 {
				return true
			}
		}
		return false
	})
	told("keb stuck", func() bool {
		out := sys.Run("stuck")
		out.ExitCode(limit)
		line := strings.Join(strings.Fields(out.Output()), " ")
		return strings.Contains(line, "no_worker 1 provision "+step+" "+worker+" "+since.UTC().Format(time.RFC3339))
	})
	told("keb operations", func() bool {
		out := sys.Run("operations", "--waiting", "no_worker")
		out.ExitCode(limit)
		return strings.Contains(out.Output(), "no live worker "+worker+" for step "+step+" since "+since.UTC().Format(time.RFC3339)) &&
			strings.Contains(out.Output(), id)
	})
	// What the alert KebStepWithoutWorker is made of; test/dashboards evaluates the rule itself.
	told("the metrics", func() bool {
		served, waits := gauge(t, sys, "keb_worker_step_served", "step", step), gauge(t, sys, "keb_step_operations", "step", step, "condition", "no_worker")
		return served == 0 && waits == 1
	})

	start()
	sys.AwaitEnd(id, "succeeded", limit)
	testkit.Eventually(t, limit, "nothing to be stuck", func() bool {
		return len(harness.Get[struct{ Data []stuck }](sys, "http://"+sys.OperatorAddr+"/stuck").Data) == 0
	})
}

// waits is what an operation waits for.
type waits struct {
	Reason, Worker, Step string
	Since                time.Time
}

type stuck struct {
	waits
	Count int
}

type liveWorker struct {
	Name              string
	Alive             bool
	MissingSteps      []string
	OperationsWaiting int
}

func waiting(sys *harness.System, id string) waits {
	return harness.Get[struct{ Waiting waits }](sys, "http://"+sys.OperatorAddr+"/operations/"+id).Waiting
}

// gauge is the value of a gauge with these labels; -1 if there is none.
func gauge(t *testing.T, sys *harness.System, name string, labels ...string) float64 {
	t.Helper()
	for _, m := range parsed(t, scrape(t, sys))[name].GetMetric() {
		if has(m, labels) {
			return m.GetGauge().GetValue()
		}
	}
	return -1
}

func has(m *dto.Metric, labels []string) bool {
	for i := 0; i < len(labels); i += 2 {
		found := false
		for _, l := range m.GetLabel() {
			found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
		}
		if !found {
			return false
		}
	}
	return true
}
