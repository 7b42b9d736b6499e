package orchestrator_test

import (
	"context"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

// A step that asks for more time runs on with another orchestrator, and with another replica after its worker was killed.
func TestExtend_OrchestratorAndWorkerKilled_LimitStays(t *testing.T) {
	s := newSystem(t)
	s.cfg.Processes = fstest.MapFS{"provision.yaml": {Data: []byte(`
operation: provision
stages:
  - name: create
    steps:
      - {name: First, worker: alpha, execution: 6s, retry: {every: 50ms, timeout: 10m}}
`)}}
	o := s.orchestrator()
	op := operation(event.Provision, "i-1", "azure")
	s.request(op)
	c, dies := s.first(false)
	ask := func(as string, cursor int64, seconds float64) (event.ExtendAnswer, error) {
		var answer event.ExtendAnswer
		err := s.bus.Ask(t.Context(), event.AskExtendAs(as), event.ExtendRequest{
			CommandRef: event.CommandRef{OperationID: op.ID, Cursor: cursor}, Seconds: seconds,
		}, &answer)
		return answer, err
	}
	for name, refused := range map[string]struct {
		as     string
		cursor int64
		want   string
	}{
		"another worker": {"beta", c.Cursor, "does not await"}, "a stale cursor": {"alpha", c.Cursor - 1, "cursor"}, "a future cursor": {"alpha", c.Cursor + 1, "does not await"},
	} {
		if _, err := ask(refused.as, refused.cursor, 60); err == nil || !strings.Contains(err.Error(), refused.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, refused.want)
		}
	}
	if _, err := ask("alpha", c.Cursor, event.MaxExtension.Seconds()+1); err == nil {
		t.Error("a request for more than a day is accepted")
	}
	answer, err := ask("alpha", c.Cursor, event.MaxExtension.Seconds())
	require.NoError(t, err)
	if got := answer.ExecuteBefore.Sub(c.FirstTriedAt); got < 10*time.Minute-time.Second || got > 10*time.Minute {
		t.Errorf("granted %s after the first try, want the budget of 10 minutes", got)
	}
	if _, err := ask("alpha", c.Cursor, event.MaxExtension.Seconds()); err == nil || !strings.Contains(err.Error(), "budget") {
		t.Errorf("error %v, want one about the budget", err)
	}
	var shown operator.OperationDetail
	s.get("/operations/"+op.ID, &shown)
	s.worker("beta") // not the worker of the step
	if shown.Cursor != c.Cursor {
		t.Errorf("cursor %d after the request, want %d", shown.Cursor, c.Cursor)
	}
	o.stop()
	// The limit in the message passes while the message waits for its replica.
	testkit.Eventually(t, patience, "the first limit passes", func() bool { return time.Now().After(c.ExecuteBefore.Add(time.Second)) })
	dies()
	s.script.set("First", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		return op, 0, op.SaveDetails(map[string]time.Time{"limit": op.ExecuteBefore})
	})
	s.worker("alpha") // without an orchestrator it must keep the command
	s.orchestrator()
	s.await(op, event.Succeeded)
	if n := s.script.count("First"); n != 1 {
		t.Errorf("the step ran %d times, want once", n)
	}
	s.get("/operations/"+op.ID, &shown)
	if !strings.Contains(string(shown.Details), answer.ExecuteBefore.Format("2006-01-02T15:04:05")) {
		t.Errorf("details %s, want the limit %s", shown.Details, answer.ExecuteBefore)
	}
	if got := s.history(op.ID); strings.Join(got, ", ") != "operation started, First succeeded, operation succeeded" {
		t.Errorf("history %v", got)
	}
}

func TestExtend_RunningStep_IsShownAndOutlivesItsLimit(t *testing.T) {
	s := newSystem(t)
	s.cfg.Processes = fstest.MapFS{"provision.yaml": {Data: []byte(`
operation: provision
stages:
  - name: create
    steps:
      - {name: First, worker: alpha, execution: 5s, retry: {every: 50ms, timeout: 10m}}
`)}}
	release := make(chan struct{})
	s.script.set("First", func(ctx context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		if _, err := op.ExtendExecution(ctx, 5*time.Minute); err != nil {
			return op, 0, err
		}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return op, 0, ctx.Err()
	})
	s.start()
	op := operation(event.Provision, "i-1", "azure")
	s.request(op)
	s.await(op, event.InProgress)
	var shown operator.OperationDetail
	testkit.Eventually(t, patience, "the new limit is shown", func() bool {
		s.get("/operations/"+op.ID, &shown)
		return shown.Waiting != nil && shown.Waiting.ExtendedSeconds > 0
	})
	w := shown.Waiting
	if w.Reason != operator.Executing || w.ExtendedSeconds < 290 || w.ExtendedSeconds > 299 || w.Until == nil || time.Until(*w.Until) < 4*time.Minute ||
		!strings.Contains(w.Extension(), "4m5") {
		t.Errorf("waiting %+v (%s), want five minutes from then", w, w.Extension())
	}
	testkit.Eventually(t, patience, "the first limit passes", func() bool { return time.Since(w.Since) > 6*time.Second })
	close(release)
	s.await(op, event.Succeeded)
	if got := s.history(op.ID); strings.Join(got, ", ") != "operation started, First succeeded, operation succeeded" {
		t.Errorf("history %v", got)
	}
}
