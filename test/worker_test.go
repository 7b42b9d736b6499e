package test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kyma-project/keb/test/internal/harness"
)

func TestATeamAddsAStepWithAnOverlayAndABinary(t *testing.T) {
	t.Parallel()
	const step = "Hello_World"
	sys := harness.Start(t, harness.Options{Overlays: []string{"../examples/hello-world-worker/overlay"}})
	id := sys.Provision(harness.Azure())
	op := sys.Await(id, limit, "a wait for a worker", func(op *harness.Operation) bool {
		return strings.Contains(op.WaitingFor, "no live worker hello-world for step "+step)
	})
	if op.State != "in progress" || op.Step != step {
		t.Errorf("the operation is %s at %s", op.State, op.Step)
	}

	var asked atomic.Int32
	greeter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		fmt.Fprintln(w, `{"data": "hello", "token": "token"}`)
	}))
	t.Cleanup(greeter.Close)
	worker := harness.Spawn(t, harness.HelloWorldWorker(t), []string{
		"KEB_NATS_URL=" + sys.NATS(), "KEB_STAGE_KEYS_FILE=" + filepath.Join(sys.DataDir, "keys"), "HELLO_URL=" + greeter.URL + "/",
	})
	op = sys.AwaitEnd(id, "succeeded", limit)
	if done := op.At(t, step); done.State != "succeeded" || asked.Load() < 1 {
		t.Errorf("the step is %+v, the greeter was asked %d times", done, asked.Load())
	}
	if problems := op.RanAgain(); len(problems) > 0 {
		t.Error(problems)
	}
	worker.Stop()
	if code := worker.ExitCode(limit); code != 0 {
		t.Errorf("the worker ended with %d:\n%s", code, worker.Output())
	}
}
