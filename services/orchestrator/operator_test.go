package orchestrator_test

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/orchestrator"
)

// withExecution returns a copy of process files in which every step of a worker has an execution limit.
func withExecution(files fstest.MapFS, limit string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, file := range files {
		lines := strings.Split(string(file.Data), "\n")
		for i, line := range lines {
			if strings.Contains(line, "worker: ") && !strings.Contains(line, "worker: orchestrator") && strings.HasSuffix(line, "}") {
				lines[i] = strings.TrimSuffix(line, "}") + ", execution: " + limit + "}"
			}
		}
		out[name] = &fstest.MapFile{Data: []byte(strings.Join(lines, "\n")), Mode: fs.ModePerm}
	}
	return out
}

func TestWorker_Absent_StepIsShownAndResumes(t *testing.T) {
	s := newSystem(t)
	s.cfg.Processes = withExecution(testProcesses, "1s")
	s.orchestrator()
	s.worker("beta")
	op := operation(event.Provision, "i-1", "azure")
	s.request(op)
	var shown struct{ Step, WaitingFor string }
	testkit.Eventually(t, patience, "the missing worker is shown", func() bool {
		if s.state(op.ID) == "" {
			return false
		}
		s.get("/operations/"+op.ID, &shown)
		return strings.HasPrefix(shown.WaitingFor, "no live worker alpha for step First since ")
	})
	var workers struct {
		Data []struct {
			Name         string
			Alive        bool
			MissingSteps []string
		}
	}
	s.get("/workers", &workers)
	if w := workers.Data[0]; w.Name != "alpha" || w.Alive || len(w.MissingSteps) != 4 {
		t.Errorf("workers: %+v", workers.Data)
	}
	// The command on the bus expires; the operation must not depend on it.
	testkit.Eventually(t, patience, "the command has expired", func() bool {
		var late bool
		_ = s.db.Get(&late, `SELECT execute_before > created_at + interval '2 seconds' FROM orchestrator.operations WHERE id = $1`, op.ID)
		return late
	})
	s.worker("alpha")
	s.await(op, event.Succeeded)
}

func TestOperator_Actions_ChangeTheOperation(t *testing.T) {
	s := newSystem(t)
	s.start()
	s.script.set("Second", failing)
	s.script.set("Poll", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		return worker.Wait(op, time.Hour, "creating")
	})
	op := operation(event.Provision, "i-1", "azure")
	s.request(op)
	s.await(op, event.Failed)

	s.script.set("Second", done)
	if code, text := s.post("/operations/"+op.ID+"/retry", `{"by":"me"}`); code != http.StatusNoContent {
		t.Fatalf("retry: %d %s", code, text)
	}
	waits := func() bool {
		var shown struct{ Step, WaitingFor string }
		s.get("/operations/"+op.ID, &shown)
		return shown.Step == "Poll" && strings.HasPrefix(shown.WaitingFor, "step Poll, polling since ")
	}
	testkit.Eventually(t, patience, "the retried operation waits in Poll", waits)
	if code, text := s.post("/operations/"+op.ID+"/skip", `{"step":"First","by":"me"}`); code != http.StatusConflict || !strings.Contains(text, "at step Poll") {
		t.Errorf("skip of another step: %d %s", code, text)
	}
	if code, text := s.post("/operations/"+op.ID+"/skip", `{"step":"Poll","by":"me"}`); code != http.StatusNoContent {
		t.Fatalf("skip: %d %s", code, text)
	}
	s.await(op, event.Succeeded)
	want := []string{
		"operation started", "Starting succeeded", "First succeeded", "Second failed", "Second operation failed", "retried by operator",
		"operation started", "First succeeded", "Second succeeded", "Poll retry", "Poll skipped", "Optional succeeded", "Last succeeded",
		"operation succeeded",
	}
	if diff := cmp.Diff(want, s.history(op.ID)); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	var shown operator.OperationDetail
	s.get("/operations/"+op.ID, &shown)
	if len(shown.Runs) != 2 || shown.Runs[0].State != event.Failed || shown.Runs[1].State != event.Succeeded {
		t.Errorf("runs are %+v, want a failed and a succeeded one", shown.Runs)
	}
	var incomplete operator.OperationList
	s.get("/operations?state=incomplete", &incomplete)
	if incomplete.Count != 1 || incomplete.Data[0].ID != op.ID || !incomplete.Data[0].Incomplete || incomplete.Data[0].State != event.Succeeded {
		t.Errorf("incomplete are %+v, want the operation with the skipped step", incomplete.Data)
	}

	cancelled := operation(event.Provision, "i-2", "azure")
	s.request(cancelled)
	testkit.Eventually(t, patience, "the other operation runs", func() bool { return s.state(cancelled.ID) == event.InProgress })
	if code, text := s.post("/operations/"+cancelled.ID+"/cancel", ""); code != http.StatusNoContent {
		t.Fatalf("cancel: %d %s", code, text)
	}
	s.await(cancelled, event.Cancelled)
}

func TestOperatorAPI_Operations_ReportTheirPosition(t *testing.T) {
	s := newSystem(t)
	s.start()
	op := operation(event.Provision, "i-1", "azure")
	s.request(op)
	s.await(op, event.Succeeded)
	var answer event.OperationsAnswer
	request := event.OperationsRequest{IDs: []string{op.ID, "00000000-0000-0000-0000-000000000000", "nonsense"}}
	require.NoError(t, s.bus.Ask(t.Context(), event.AskOperations, request, &answer))
	if len(answer.Operations) != 1 || answer.Operations[0].OperationID != op.ID || answer.Operations[0].State != event.Succeeded {
		t.Errorf("answer: %+v", answer)
	}
	if err := s.bus.Ask(t.Context(), event.AskOperations, event.OperationsRequest{IDs: make([]string, 501)}, &answer); err == nil {
		t.Error("a request for 501 operations is answered")
	}
}

func TestDeadLetters_UnreadableMessage_BlocksNoOther(t *testing.T) {
	s := newSystem(t)
	s.start()
	dead := make(chan *nats.Msg, 10)
	sub, err := s.bus.NATS().ChanSubscribe("keb.dead.*", dead)
	require.NoError(t, err)
	defer func() { _ = sub.Unsubscribe() }()
	for _, m := range []struct{ subject, body string }{
		{"keb.result.alpha.First", `not a CloudEvent`},
		{"keb.request.provision", `neither`},
	} {
		_, err := s.bus.JetStream().Publish(t.Context(), m.subject, []byte(m.body))
		require.NoError(t, err)
	}
	unknown := operation(event.UpgradeKyma, "i-1", "azure") // no process exists for it
	s.request(unknown)
	good := operation(event.Provision, "i-2", "azure")
	s.request(good)
	s.await(good, event.Succeeded)
	seen := map[string]string{}
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for range 3 {
		select {
		case m := <-dead:
			seen[m.Header.Get("Keb-Dead-Subject")] = m.Header.Get("Keb-Dead-Reason")
		case <-deadline.C:
			t.Fatalf("dead letters: %v, want three", seen)
		}
	}
	want := []string{"keb.request.provision", "keb.request.upgradeKyma", "keb.result.alpha.First"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(seen))); diff != "" {
		t.Errorf("subjects of the dead letters (-want +got):\n%s", diff)
	}
	for subject, reason := range seen {
		if reason == "" {
			t.Errorf("dead letter from %s has no reason", subject)
		}
	}
}

func TestIdle_Database_OneStatementPerSecond(t *testing.T) {
	s := newSystem(t)
	s.cfg.SweepEvery = 0 // the default
	s.start()
	op := operation(event.Provision, "i-1", "azure")
	s.request(op)
	s.await(op, event.Succeeded)
	count := func() (n int) {
		require.NoError(t, s.db.Get(&n, `SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`))
		return n
	}
	// Statistics are delayed by up to ten seconds, so the test measures several seconds together, including its own queries, and repeats
	// the measurement if earlier transactions appear late.
	testkit.Eventually(t, time.Minute, "about one transaction a second", func() bool {
		start, before := time.Now(), count()
		testkit.Eventually(t, time.Minute, "five idle seconds have passed", func() bool { return time.Since(start) > 5*time.Second })
		n, took := count()-before, time.Since(start)
		t.Logf("%d transactions in %s", n, took)
		return float64(n) <= took.Seconds()+3
	})
}

func TestConfig_InvalidField_IsNamed(t *testing.T) {
	overlays := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(overlays, "typo.yaml"), []byte("operation: provision\nchanges:\n  - add:\n      stepp: X\n"), 0o600))
	policy := filepath.Join(t.TempDir(), "policy.json")
	require.NoError(t, os.WriteFile(policy, []byte(`{"default": {"timeBegin": "220000+0000", "timeEnd": "late"}}`), 0o600))
	for _, c := range []struct {
		name string
		edit func(c *orchestrator.Config)
		want string
	}{
		{"no database", func(c *orchestrator.Config) { c.Database.URL = "" }, "KEB_DATABASE_URL"},
		{"no host of the database", func(c *orchestrator.Config) { c.Database.URL = "postgres:///db" }, "KEB_DATABASE_URL: the database URL names no host"},
		{"an archive with a shorter retention than the facts", func(c *orchestrator.Config) { c.KeepOperations = time.Hour; c.KeepArchive = 7 * 24 * time.Hour }, "KEB_ARCHIVE_KEEP: 168h0m0s: must not be shorter than 192h0m0s"},
		{"an archive with a shorter retention than the list", func(c *orchestrator.Config) { c.KeepArchive = 30 * 24 * time.Hour }, "KEB_ARCHIVE_KEEP: 720h0m0s: must not be shorter than KEB_OPERATIONS_KEEP"},
		{"missing policy", func(c *orchestrator.Config) { c.MaintenancePolicy = overlays + "/none" }, "KEB_MAINTENANCE_POLICY: open "},
		{"broken policy", func(c *orchestrator.Config) { c.MaintenancePolicy = policy }, "KEB_MAINTENANCE_POLICY: " + policy + ": default.timeEnd"},
		{"missing overlay", func(c *orchestrator.Config) { c.Overlays = []string{overlays + "/none"} }, "KEB_OVERLAYS"},
		{"typo in an overlay", func(c *orchestrator.Config) { c.Overlays = []string{overlays} }, "typo.yaml:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := configAt("postgres://h/db")
			c.edit(&cfg)
			err := cfg.Validate()
			if err == nil || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("error is %v, want it to name %s", err, c.want)
			}
		})
	}
}

func TestRetry_EarlierStage_IsPreviewedAndRuns(t *testing.T) {
	s := newSystem(t)
	s.start()
	s.script.set("Last", failing)
	failed := operation(event.Provision, "i-1", "trial")
	s.request(failed)
	s.await(failed, event.Failed)
	s.script.set("Last", done)
	path := "/operations/" + failed.ID + "/retry"
	for body, want := range map[string]int{
		`{"stage": "nowhere"}`:                 http.StatusConflict,
		`{"stage": "nowhere", "dryRun": true}`: http.StatusConflict,
		`{"dryRun": 1}`:                        http.StatusBadRequest,
	} {
		if code, text := s.post(path, body); code != want {
			t.Errorf("%s: %d %s, want %d", body, code, text, want)
		}
	}
	for _, action := range []string{"cancel", "skip"} {
		body := `{"step": "Last", "dryRun": true}`
		if code, text := s.post("/operations/"+failed.ID+"/"+action, body); code != http.StatusBadRequest || !strings.Contains(text, "only for a retry") {
			t.Errorf("%s with a dry run: %d %s", action, code, text)
		}
	}
	code, text := s.post(path, `{"stage": "create", "dryRun": true}`)
	const want = `{"steps":[{"stage":"create","step":"First","plan":"again"},{"stage":"create","step":"Second","plan":"again"},` +
		`{"stage":"create","step":"Poll","plan":"again"},` +
		`{"stage":"finish","step":"Optional","plan":"skipped","reason":"condition is false: plan.name != \"trial\""},` +
		`{"stage":"finish","step":"Last","plan":"again"}],` +
		`"sent":{"parameters":{"name":"demo"},"credentials":[],"detailsRecorded":true,"executionMs":60000,"retryTimeoutMs":600000}}`
	if code != http.StatusOK || strings.TrimSpace(text) != want {
		t.Errorf("preview: %d %s, want %s", code, text, want)
	}
	if state := s.state(failed.ID); state != event.Failed {
		t.Errorf("the preview has made it %s", state)
	}
	runs := s.script.count("Second")
	if code, text := s.post(path, `{"by": "ann", "stage": "create"}`); code != http.StatusNoContent {
		t.Fatalf("retry: %d %s", code, text)
	}
	s.await(failed, event.Succeeded)
	if got := s.script.count("Second"); got != runs+1 {
		t.Errorf("Second was executed %d times, want %d", got, runs+1)
	}
}
