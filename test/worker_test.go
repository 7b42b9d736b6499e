package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

func TestWorker_OverlayAndBinary_AddStep(t *testing.T) {
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

// The operations of docs/step-author.md with the real worker. The greeter answers differently each time, so each operation must have saved its
// own answer.
func TestHelloWorld_EachOperation_RunsIt(t *testing.T) {
	t.Parallel()
	sys := harness.Start(t, harness.Options{Overlays: []string{"../examples/hello-world-worker/overlay-every-operation"}})
	var asked atomic.Int32
	greeter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"data": "hello %d", "token": "token"}`, asked.Add(1))
	}))
	t.Cleanup(greeter.Close)
	harness.Spawn(t, harness.HelloWorldWorker(t), []string{
		"KEB_NATS_URL=" + sys.NATS(), "KEB_STAGE_KEYS_FILE=" + filepath.Join(sys.DataDir, "keys"), "HELLO_URL=" + greeter.URL + "/",
	})
	o := harness.Azure()
	upgraded := func(kind string, args ...string) func() string {
		return func() string {
			upgrade(t, sys, args...)
			testkit.Eventually(t, limit, kind, func() bool { return len(upgrades(sys, kind)) == 1 })
			return upgrades(sys, kind)[0].ID
		}
	}
	for i, operation := range []struct {
		kind  string
		stage string
		begin func() string
	}{
		{"provision", "create_runtime", func() string {
			id := sys.Provision(o)
			sys.PollEnd(o, id, osb.StateSucceeded, limit) // the broker, too, knows the runtime that is upgraded next
			return id
		}},
		{"upgradeKyma", "upgrade_kyma", upgraded("upgradeKyma", "kyma", "--version", nextKyma)},
		{"upgradeCluster", "hello_world", upgraded("upgradeCluster", "cluster", "--kubernetes-version", "1.33.4")},
		{"deprovision", "hello_world", func() string { return sys.Deprovision(o) }},
	} {
		op := sys.AwaitEnd(operation.begin(), "succeeded", limit)
		if diff := cmp.Diff([]string{"succeeded"}, op.Outcomes("Hello_World")); string(op.Type) != operation.kind || diff != "" {
			t.Errorf("%s: the step's history (-want +got):\n%s", op.Type, diff)
		}
		for _, entry := range op.History {
			if entry.Step == "Hello_World" && entry.Stage != operation.stage {
				t.Errorf("%s: the step ran in stage %s, want %s", op.Type, entry.Stage, operation.stage)
			}
		}
		want := fmt.Sprintf(`{"helloWorlds": "hello %d"}`, i+1)
		var details map[string]any
		var wanted any
		if err := errors.Join(json.Unmarshal(op.Details, &details), json.Unmarshal([]byte(want), &wanted)); err != nil {
			t.Errorf("%s: details %s: %v", op.Type, op.Details, err)
		}
		if diff := cmp.Diff(wanted, details["hello-world"]); diff != "" {
			t.Errorf("%s: details (-want +got):\n%s", op.Type, diff)
		}
	}
}
