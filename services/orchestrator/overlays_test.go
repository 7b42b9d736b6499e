package orchestrator_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

// second adds a step to the update, which the worker beta executes.
const second = "operation: update\nchanges: [{add: {after: Change, step: {name: Second, worker: beta}}}]\n"

// overlays sends a change of the overlays, and returns the answer or the error in it.
func (s *system) overlays(method, path string, request any) (answer operator.OverlayAnswer, problem string) {
	s.t.Helper()
	code, text := s.do(method, path, request)
	if code == http.StatusOK {
		require.NoError(s.t, json.Unmarshal([]byte(text), &answer))
		return answer, ""
	}
	var failure operator.Error
	require.NoError(s.t, json.Unmarshal([]byte(text), &failure))
	return answer, failure.Error
}

func (s *system) overlay(name, content string) (operator.OverlayAnswer, string) {
	s.t.Helper()
	return s.overlays(http.MethodPut, "/overlays/"+name, operator.OverlayRequest{Content: content, By: "jane"})
}

// hasStep reports whether new updates have a step.
func (s *system) hasStep(step string) bool {
	s.t.Helper()
	var list operator.List[json.RawMessage]
	s.get("/processes", &list)
	for _, p := range list.Data {
		if strings.Contains(string(p), `"operation":"update"`) && strings.Contains(string(p), `"name":"`+step+`"`) {
			return true
		}
	}
	return false
}

func TestOverlays_OrchestratorKilled_OtherUsesNewVersion(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	entered, release := make(chan struct{}, 10), make(chan struct{})
	s.script.set("Change", func(ctx context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		entered <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return op, 0, ctx.Err()
	})
	first := s.start()
	other := s.orchestrator()
	before := operation(event.Update, "i-before", "azure")
	s.request(before)
	<-entered
	if answer, problem := s.overlay("hello", second); problem != "" || answer.Version != 1 || !answer.Changed || !strings.Contains(answer.Diff, "+  Second: worker beta") {
		t.Fatalf("answer %+v, problem %s", answer, problem)
	}
	// The orchestrator that has taken the change ends. The other one uses the change without a restart.
	first.stop()
	testkit.Eventually(t, patience, "the other orchestrator uses the overlay", func() bool {
		op := operation(event.Update, "i-"+uuid.NewString(), "azure")
		s.request(op)
		<-entered
		var changed bool
		require.NoError(t, s.db.Get(&changed, `
SELECT r.definition = c.hash FROM orchestrator.requests r, orchestrator.current_definitions c WHERE r.operation_id = $1 AND c.operation_type = 'update'`, op.ID))
		return changed
	})
	// One that starts finds the change in the database.
	other.stop()
	s.orchestrator()
	after := operation(event.Update, "i-after", "azure")
	s.request(after)
	<-entered
	close(release)
	s.await(before, event.Succeeded)
	s.await(after, event.Succeeded)
	if n := s.script.countOf(before.ID, "Second"); n != 0 {
		t.Errorf("the operation that began before the change ran the new step %d times", n)
	}
	if n := s.script.countOf(after.ID, "Second"); n != 1 {
		t.Errorf("the operation after the change ran the new step %d times, want once", n)
	}
}

func TestOverlays_Changes_AreVersionedAndRecorded(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.start()
	hello := func(content string, preview bool) (operator.OverlayAnswer, string) {
		return s.overlays(http.MethodPut, "/overlays/hello", operator.OverlayRequest{Content: content, By: "jane", DryRun: preview})
	}
	rollback := func(version int64) (operator.OverlayAnswer, string) {
		return s.overlays(http.MethodPost, "/overlays/rollback", operator.OverlayRollback{Version: version, By: "john"})
	}
	for _, step := range []struct {
		name    string
		do      func() (operator.OverlayAnswer, string)
		version int64
		changed bool
		problem string
		active  bool
	}{
		{"preview", func() (operator.OverlayAnswer, string) { return hello(second, true) }, 0, true, "", false},
		{"apply", func() (operator.OverlayAnswer, string) { return hello(second, false) }, 1, true, "", true},
		{"apply again", func() (operator.OverlayAnswer, string) { return hello(second, false) }, 1, false, "", true},
		{
			"conflict", func() (operator.OverlayAnswer, string) { return s.overlay("other", second) }, 0, false,
			`applied/other.yaml:2: step "Second" is already defined at applied/hello.yaml:2`, true,
		},
		{
			"unknown step", func() (operator.OverlayAnswer, string) {
				return hello("operation: update\nchanges: [{disable: Chnage}]\n", false)
			}, 0, false,
			`applied/hello.yaml:2: disable: unknown step "Chnage"; did you mean Change?`, true,
		},
		{
			"bad name", func() (operator.OverlayAnswer, string) { return s.overlay("a.b", second) }, 0, false,
			`name: "a.b" is not a name; a name has at most 64 letters, digits, _ and -, and starts with a letter or digit`, true,
		},
		{
			"empty", func() (operator.OverlayAnswer, string) { return hello(" \n", false) }, 0, false,
			"content: must be an overlay in YAML (docs/overlays.md)", true,
		},
		{
			"remove unknown", func() (operator.OverlayAnswer, string) {
				return s.overlays(http.MethodDelete, "/overlays/other", operator.OverlayRemoval{})
			}, 0, false,
			`overlay "other": not found`, true,
		},
		{"remove", func() (operator.OverlayAnswer, string) {
			return s.overlays(http.MethodDelete, "/overlays/hello", operator.OverlayRemoval{By: "jane"})
		}, 2, true, "", false},
		{"roll back", func() (operator.OverlayAnswer, string) { return rollback(1) }, 3, true, "", true},
		{"roll back to nothing", func() (operator.OverlayAnswer, string) { return rollback(0) }, 4, true, "", false},
		{"roll back to unknown", func() (operator.OverlayAnswer, string) { return rollback(9) }, 0, false, "version 9 of the overlays: not found", false},
	} {
		answer, problem := step.do()
		if problem != step.problem || answer.Version != step.version || answer.Changed != step.changed {
			t.Errorf("%s: version %d, changed %t, problem %q; want %d, %t, %q", step.name, answer.Version, answer.Changed, problem, step.version, step.changed, step.problem)
		}
		if got := s.hasStep("Second"); got != step.active {
			t.Errorf("%s: the step is in the process: %t, want %t", step.name, got, step.active)
		}
	}
	var versions operator.List[operator.OverlayVersion]
	s.get("/overlays/versions", &versions)
	var lines []string
	for i := range versions.Data {
		v := &versions.Data[i]
		lines = append(lines, strings.TrimSpace(v.Action+" "+v.Name)+" by "+v.By)
	}
	if diff := cmp.Diff([]string{"rollback by john", "rollback by john", "remove hello by jane", "apply hello by jane"}, lines); diff != "" {
		t.Errorf("versions differ (-want +got):\n%s", diff)
	}
	var actions operator.List[operator.Action]
	s.get("/actions?action=apply_overlay&outcome=done", &actions)
	if a := actions.Data; len(a) != 3 || a[1].Target != "hello" || a[1].Name != "jane" || a[1].Detail != "version 1" {
		t.Errorf("the actions are %+v", a)
	}
	actions = operator.List[operator.Action]{}
	s.get("/actions?action=roll_back_overlays&target=1", &actions)
	if a := actions.Data; len(a) != 1 || a[0].Name != "john" || a[0].Detail != "version 3" {
		t.Errorf("the rollbacks are %+v", a)
	}
}

func TestOverlays_FileChanges_AppliesOnlyIfValid(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	// Like Kubernetes: the folder has links into a folder that a second link names.
	dir := t.TempDir()
	publish := func(revision, content string) {
		t.Helper()
		require.NoError(t, os.Mkdir(filepath.Join(dir, revision), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, revision, "hello.yaml"), []byte(content), 0o600))
		require.NoError(t, os.Symlink(revision, filepath.Join(dir, "next")))
		require.NoError(t, os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "..data")))
	}
	publish("..1", "operation: update\nchanges: [{retime: {timeout: 2h}}]\n")
	require.NoError(t, os.Symlink("..data/hello.yaml", filepath.Join(dir, "hello.yaml")))
	s.cfg.Overlays, s.cfg.WatchEvery = []string{dir}, 20*time.Millisecond
	s.start()
	publish("..2", second)
	testkit.Eventually(t, patience, "the changed file applies", func() bool { return s.hasStep("Second") })
	publish("..3", "operation: update\nchanges: [{disable: Chnage}]\n")
	var overlays operator.Overlays
	problem := func() string {
		overlays = operator.Overlays{}
		s.get("/overlays", &overlays)
		return overlays.Problem
	}
	testkit.Eventually(t, patience, "the invalid file is rejected", func() bool { return strings.Contains(problem(), `hello.yaml:2: disable: unknown step "Chnage"`) })
	if !s.hasStep("Second") || overlays.ProblemSince == nil {
		t.Errorf("the last valid file does not apply any more: %+v", overlays)
	}
	// An applied overlay is combined with the last valid files.
	if _, problem := s.overlay("more", "operation: update\nchanges: [{retime: {step: Second, execution: 7s}}]\n"); problem != "" {
		t.Errorf("the overlay is rejected: %s", problem)
	}
	if problem(); overlays.InUse != 1 || overlays.Problem == "" {
		t.Errorf("the overlays are %+v", overlays)
	}
	// Without the step the applied overlay is invalid.
	publish("..4", "operation: update\nchanges: [{retime: {timeout: 3h}}]\n")
	testkit.Eventually(t, patience, "the combination is rejected", func() bool {
		return strings.Contains(problem(), `applied/more.yaml:2: retime.step: unknown step "Second"`)
	})
	if _, problem := s.overlays(http.MethodDelete, "/overlays/more", operator.OverlayRemoval{}); problem != "" {
		t.Errorf("the overlay is not removed: %s", problem)
	}
	testkit.Eventually(t, patience, "the newest files apply", func() bool { return problem() == "" && !s.hasStep("Second") })
}

func TestOverlays_StartWithoutFit_KeepsLastDefinitions(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "hello.yaml")
	require.NoError(t, os.WriteFile(file, []byte(second), 0o600))
	s.cfg.Overlays = []string{dir}
	o := s.start()
	if _, problem := s.overlay("more", "operation: update\nchanges: [{retime: {step: Second, execution: 7s}}]\n"); problem != "" {
		t.Fatalf("the overlay is rejected: %s", problem)
	}
	o.stop()
	require.NoError(t, os.Remove(file))
	s.api = nil
	s.orchestrator()
	var overlays operator.Overlays
	s.get("/overlays", &overlays)
	if !s.hasStep("Second") || !strings.Contains(overlays.Problem, `applied/more.yaml:2: retime.step: unknown step "Second"`) {
		t.Errorf("the overlays are %+v", overlays)
	}
	op := operation(event.Update, "i-1", "azure")
	s.request(op)
	s.await(op, event.Succeeded)
	if n := s.script.countOf(op.ID, "Second"); n != 1 {
		t.Errorf("the step ran %d times, want once", n)
	}
}
