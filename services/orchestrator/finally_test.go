package orchestrator_test

import (
	"context"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

func TestFinally_Restart_KeepsTheReason(t *testing.T) {
	s := newSystem(t)
	s.cfg.Processes = fstest.MapFS{"update.yaml": {Data: []byte(`
operation: update
timeout: 1h
stages:
  - name: change
    steps:
      - {name: Change, worker: alpha, retry: {every: 50ms, timeout: 10m}}
finally:
  - {name: First, worker: alpha, retry: {every: 50ms}}
  - {name: Second, worker: beta, retry: {every: 50ms}}
`)}}
	s.script.set("Change", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		return worker.Fail(op, &worker.Error{Component: "ext", Reason: "broken", Message: "it broke"})
	})
	waiting := make(chan struct{}, 1)
	open := make(gate)
	s.script.set("First", func(ctx context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		select {
		case waiting <- struct{}{}:
		default:
		}
		return open.step(ctx, op)
	})
	first := s.start()
	update := operation(event.Update, "i", "azure")
	s.request(update)
	<-waiting
	var shown struct {
		State, Stage, Step string
		Error              *event.Error
		Stages             []struct{ Name, State string }
	}
	s.get("/operations/"+update.ID, &shown)
	if shown.State != "in progress" || shown.Stage != "finally" || shown.Step != "First" || shown.Error == nil || shown.Error.Message != "it broke" {
		t.Errorf("while it is ending: %+v", shown)
	}
	if shown.Stages[0].State != "failed" || shown.Stages[1].State != "current" {
		t.Errorf("stages: %+v", shown.Stages)
	}
	first.stop()
	s.orchestrator()
	close(open)
	s.await(update, event.Failed)
	want := []string{
		"operation started", "Change failed", "operation ending", "First succeeded", "Second succeeded", "Change operation failed",
	}
	if diff := cmp.Diff(want, s.history(update.ID)); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	testkit.Eventually(t, patience, "the operation has failed", func() bool {
		return slices.Contains(s.factsOf(update.ID), string(event.TypeOperationFailed))
	})
	if facts := s.factsOf(update.ID); facts[len(facts)-1] != string(event.TypeOperationFailed) {
		t.Errorf("facts: %v", facts)
	}
	var at struct{ Stage, Step string }
	s.get("/operations/"+update.ID, &at)
	if at.Stage != "change" || at.Step != "Change" {
		t.Errorf("it failed at %+v, want Change", at)
	}
}
