package test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/test/internal/harness"
)

// The budget of testdata/short-budgets.
const (
	edpBudget = 8 * time.Second
	outage    = `{"outage": true}`
	healthy   = `{}`
)

func TestOutage_BudgetSpentAcrossRestart_Fails(t *testing.T) {
	t.Parallel()
	const step = "EDP_Registration"
	sys := harness.Start(t, harness.Options{Overlays: []string{"testdata/short-budgets"}})
	sys.Fault("edp", outage)
	o := harness.Azure()
	id := sys.Provision(o)
	sys.Await(id, limit, "the operation", func(*harness.Operation) bool { return true })
	watch := sys.Run("watch", id)

	// The kill comes after a quarter of the budget.
	op := sys.Await(id, limit, "retries of "+step, func(op *harness.Operation) bool {
		s := op.At(t, step)
		return s.Attempts >= 3 && s.Error != nil && time.Since(*s.FirstTriedAt) > edpBudget/4
	})
	tried := op.At(t, step)
	killed := time.Now()
	sys.Kill()
	restarted := time.Now()
	sys.Start()

	op = sys.AwaitEnd(id, "failed", limit)
	end := op.At(t, step)
	if !end.FirstTriedAt.Before(killed) || end.Attempts <= tried.Attempts {
		t.Errorf("after the restart the step was first tried at %s, %d times; before at %s, %d times",
			end.FirstTriedAt, end.Attempts, tried.FirstTriedAt, tried.Attempts)
	}
	// The budget counts from the first command, which was sent after the start of the step before.
	first := slices.IndexFunc(op.History, func(e operator.HistoryLine) bool { return e.Step == step })
	if took := op.FinishedAt.Sub(harness.FirstStart(op.History[first-1])); took < edpBudget {
		t.Errorf("failed after %s, before the budget of %s was spent", took, edpBudget)
	}
	if !slices.ContainsFunc(op.History, func(e operator.HistoryLine) bool { return e.Step == step && e.StartedAt.After(restarted) }) {
		t.Fatalf("the step was not tried after the restart: %v", op.History)
	}
	// The first try that begins after the budget is spent is the last, even if the restart took long.
	spent := harness.FirstStart(op.History[first]).Add(edpBudget)
	if slices.ContainsFunc(op.History, func(e operator.HistoryLine) bool {
		return e.Step == step && e.Outcome == "retry" && e.StartedAt.After(spent)
	}) {
		t.Errorf("a try after %s is followed by another: the budget of %s has started anew: %v", spent, edpBudget, op.History)
	}
	if op.Error == nil || op.Error.Component != "edp" || op.Error.Message == "" || op.Step != step {
		t.Errorf("failed at %s with %+v, want the error of %s", op.Step, op.Error, step)
	}
	if outcomes := op.Outcomes(step); slices.Contains(outcomes, "succeeded") || slices.Contains(op.Outcomes("BTPOperatorOverrides"), "succeeded") {
		t.Errorf("the history goes on behind the failed step: %v", op.History)
	}
	last := sys.PollEnd(o, id, osb.StateFailed, limit)
	if !strings.Contains(last.Description, "The cause is on our side.") || strings.Contains(last.Description, step) {
		t.Errorf("the platform is told %q, want whose side the cause is on, without a step", last.Description)
	}
	if code := watch.ExitCode(limit); code != 1 {
		t.Errorf("watch ended with %d, want 1", code)
	}
	told := watch.Output()
	for _, want := range []string{
		`create_runtime/` + step + ` failing \(try \d+\) after .*status 503`, `create_runtime starts again \(attempt \d+\)`,
		`create_runtime/` + step + ` failed \(try \d+\)`,
	} {
		if !regexp.MustCompile(want).MatchString(told) {
			t.Errorf("watch does not tell %q:\n%s", want, told)
		}
	}
}

// Waiting for a runtime has its own budget.
func TestWaitBudget_Restart_IsNotGrantedAgain(t *testing.T) {
	t.Parallel()
	const step, budget = "Check_Runtime", 8 * time.Second
	sys := harness.Start(t, harness.Options{Overlays: []string{"testdata/short-wait"}, Env: []string{"KEB_LANDSCAPE_CLUSTER_TIME=1h"}})
	o := harness.Azure()
	id := sys.Provision(o)
	sys.Await(id, limit, "looks of "+step, func(op *harness.Operation) bool {
		s := op.At(t, step)
		return s.Attempts >= 3 && time.Since(*s.FirstTriedAt) > budget/4
	})
	sys.Kill()
	restarted := time.Now()
	sys.Start()

	op := sys.AwaitEnd(id, "failed", limit)
	const want = step + " has waited for 8s without success: the runtime is being created"
	if op.Error == nil || op.Error.Message != want || op.Step != step {
		t.Errorf("failed at %s with %+v, want %q", op.Step, op.Error, want)
	}
	if !slices.ContainsFunc(op.History, func(e operator.HistoryLine) bool { return e.Step == step && e.StartedAt.After(restarted) }) {
		t.Fatalf("the step was not tried after the restart: %v", op.History)
	}
	first := slices.IndexFunc(op.History, func(e operator.HistoryLine) bool { return e.Step == step })
	spent := harness.FirstStart(op.History[first]).Add(budget)
	if slices.ContainsFunc(op.History, func(e operator.HistoryLine) bool {
		return e.Step == step && e.Outcome == "retry" && e.StartedAt.After(spent)
	}) {
		t.Errorf("a look after %s is followed by another: the budget of %s has started anew: %v", spent, budget, op.History)
	}
	sys.PollEnd(o, id, osb.StateFailed, limit)
}
