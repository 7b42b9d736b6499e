package orchestrator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

// limits applies a document through the operator API.
func (s *system) limits(document string, dryRun bool) (answer operator.LimitsAnswer, status int) {
	s.t.Helper()
	status, text := s.do(http.MethodPut, "/limits", operator.LimitsRequest{Document: document, DryRun: dryRun, By: "jane"})
	require.NoError(s.t, json.Unmarshal([]byte(text), &answer))
	return answer, status
}

// applied applies a valid document.
func (s *system) applied(document string) {
	s.t.Helper()
	if _, status := s.limits(document, false); status != http.StatusOK {
		s.t.Fatalf("the limits are answered with %d", status)
	}
}

func TestLimits_Apply_RecordsTheDocument(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.start()
	const document = "# bounds\nlimits: [{name: beta, scope: {worker: beta}, each: plan, commands: 3, rate: 5/s}]\nweights: {ga: 2}\n"
	added := []string{"beta: added: at most 3 commands in flight and a rate of 5/s for each plan of worker beta", "weight of ga: 2; was 1"}
	for _, tt := range []struct {
		document string
		dryRun   bool
		want     operator.LimitsAnswer
	}{
		{document, true, operator.LimitsAnswer{Version: 0, Changes: added}},
		{document, false, operator.LimitsAnswer{Version: 1, Changes: added}},
		{document, false, operator.LimitsAnswer{Version: 1, Changes: []string{}}},
		{document + "# more\n", false, operator.LimitsAnswer{Version: 2, Changes: []string{}}},
	} {
		got, status := s.limits(tt.document, tt.dryRun)
		if diff := cmp.Diff(tt.want, got); diff != "" || status != http.StatusOK {
			t.Errorf("status %d, answer differs (-want +got):\n%s", status, diff)
		}
	}
	if _, status := s.limits("limits: [{name: x}]", false); status != http.StatusBadRequest {
		t.Errorf("an invalid document is answered with %d, want 400", status)
	}
	var got operator.Limits
	s.get("/limits", &got)
	if got.AppliedAt == nil || got.AppliedAt.IsZero() {
		t.Errorf("applied at %v", got.AppliedAt)
	}
	want := operator.Limits{
		Version: 2, Document: document + "# more\n", AppliedBy: "jane", AppliedAt: got.AppliedAt, Weights: map[string]float64{"ga": 2},
		Limits: []operator.Limit{{Name: "beta", Scope: map[string][]string{"worker": {"beta"}}, Each: "plan", Commands: 3, Rate: "5/s"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("limits differ (-want +got):\n%s", diff)
	}
	var actions operator.List[operator.Action]
	s.get("/actions", &actions)
	details := map[string]bool{}
	for i := range actions.Data {
		details[actions.Data[i].Action+": "+actions.Data[i].Detail] = true
	}
	for _, want := range []string{"apply_limits: preview: " + added[0] + "; " + added[1], "apply_limits: " + added[0] + "; " + added[1]} {
		if !details[want] {
			t.Errorf("the actions do not have %q: %v", want, details)
		}
	}
}

// counter counts the steps that execute at the same time.
type counter struct {
	mu       sync.Mutex
	now, max int
}

func (c *counter) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += n
	c.max = max(c.max, c.now)
}

// reset returns the maximum since the last reset.
func (c *counter) reset() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := c.max
	c.max = c.now
	return most
}

func TestLimits_TwoOrchestrators_NeverExceedAndShowThem(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	var running counter
	turn := make(chan struct{})
	s.script.set("Change", func(ctx context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		running.add(1)
		defer running.add(-1)
		select {
		case <-turn:
		case <-ctx.Done():
		}
		return op, 0, nil
	})
	o := s.start()
	s.orchestrator()
	s.limits("limits: [{name: alpha, scope: {worker: alpha}, commands: 2}]", false)
	ops := make([]event.Operation, 12)
	for i := range ops {
		ops[i] = operation(event.Update, fmt.Sprintf("i-%d", i), "azure")
	}
	s.request(ops...)
	var limits operator.Limits
	use := func(inUse, waiting int) func() bool {
		return func() bool {
			s.get("/limits", &limits)
			u := limits.Limits[0].Use
			return len(u) == 1 && u[0].InUse == inUse && u[0].Waiting == waiting
		}
	}
	testkit.Eventually(t, patience, "two commands are in flight", use(2, 10))
	var list operator.OperationList
	s.get("/operations?waiting=limited", &list)
	if list.TotalCount != 10 {
		t.Errorf("%d operations are listed as limited, want 10", list.TotalCount)
	}
	testkit.Eventually(t, patience, "each waiting operation has a position", func() bool {
		positions := map[int]bool{}
		s.get("/operations?waiting=limited&page_size=10", &list)
		for i := range list.Data {
			if w := list.Data[i].Waiting; w.Reason == operator.Limited && w.Limit == "alpha" && w.Step == "Change" {
				positions[w.Position] = true
			}
		}
		return len(positions) == 10 && positions[1] && positions[10]
	})
	testkit.Eventually(t, patience, "the limited operations are listed as stuck", func() bool {
		var stuck operator.List[*operator.Stuck]
		s.get("/stuck?waiting=limited", &stuck)
		return len(stuck.Data) == 1 && stuck.Data[0].Count == 10 && strings.Contains(stuck.Data[0].Text, "a limit has no room for step Change")
	})
	for range 4 {
		turn <- struct{}{}
	}
	testkit.Eventually(t, patience, "four operations have ended", use(2, 6))
	o.stop()
	s.orchestrator()
	for range 2 {
		turn <- struct{}{}
	}
	testkit.Eventually(t, patience, "two more operations have ended", use(2, 4))
	if most := running.reset(); most != 2 {
		t.Errorf("%d steps ran at the same time, want 2", most)
	}
	s.limits("limits: [{name: alpha, scope: {worker: alpha}, commands: 3}]", false)
	testkit.Eventually(t, patience, "the raised limit applies", use(3, 3))
	s.limits("limits: [{name: all, operations: 1}]", false)
	testkit.Eventually(t, patience, "the use of the limit of operations is shown", func() bool {
		s.get("/limits", &limits)
		u := limits.Limits[0].OperationUse
		return len(u) == 1 && u[0].InUse == 6 && u[0].Waiting == 0
	})
	s.limits("limits: []", false)
	close(turn)
	for _, op := range ops {
		s.await(op, event.Succeeded)
	}
}
