package orchestrator_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

func TestSlow_ExecutionTakesLongerThanUsual_IsShownUntilItEnds(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.cfg.SlowAfter = 500 * time.Millisecond
	s.start()
	usual := make([]event.Operation, 25)
	for i := range usual {
		usual[i] = operation(event.Update, fmt.Sprintf("i-%d", i), "azure")
	}
	s.request(usual...)
	for _, op := range usual {
		s.await(op, event.Succeeded)
	}
	began, proceed := make(chan struct{}), make(chan struct{})
	s.script.set("Change", func(ctx context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		close(began)
		select {
		case <-proceed:
		case <-ctx.Done():
		}
		return op, 0, nil
	})
	slow := operation(event.Update, "i-slow", "azure")
	s.request(slow)
	<-began
	var detail operator.OperationDetail
	testkit.Eventually(t, patience, "the execution is slow", func() bool {
		s.get("/operations/"+slow.ID, &detail)
		return detail.Waiting != nil && detail.Waiting.Reason == operator.Slow
	})
	if w := detail.Waiting; w.Step != "Change" || w.Until == nil || !strings.Contains(detail.WaitingFor, "longer than usual") {
		t.Errorf("waiting %+v: %s", w, detail.WaitingFor)
	}
	var list operator.OperationList
	s.get("/operations?waiting=slow", &list)
	if list.TotalCount != 1 {
		t.Errorf("%d operations are listed as slow, want 1", list.TotalCount)
	}
	testkit.Eventually(t, patience, "it is listed as stuck", func() bool {
		var stuck operator.List[*operator.Stuck]
		s.get("/stuck?waiting=slow", &stuck)
		return len(stuck.Data) == 1 && stuck.Data[0].Step == "Change" && strings.Contains(stuck.Data[0].Text, "executes for longer than usual")
	})
	close(proceed)
	s.await(slow, event.Succeeded)
}
