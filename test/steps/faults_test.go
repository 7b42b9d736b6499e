// Package steps_test tests every step of every process with faults of the external systems and kills of its worker. A new step only needs a
// row in the table of answers.
package steps_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// meaning is the effect of an answer on a step.
type meaning int

const (
	// again means that the step is retried, and the operation ends as without the fault.
	again meaning = iota + 1
	// broken means that the step fails, and the process decides how the operation continues.
	broken
	// fine means that the step accepts the answer, for example that an object to delete does not exist.
	fine
)

// answers has the meaning for each step if every call of one execution is answered with 404, or with an invalid answer. The meaning of
// 500, no answer and a kill is again for all steps.
var answers = map[string]struct{ notFound, garbage meaning }{
	"Resolve_Target_Secret":                  {broken, again},
	"AVS_Create_Internal_Eval_Step":          {broken, again},
	"EDP_Registration":                       {again, again}, // a tenant that disappears during its creation is created again
	"Provision_Initialization":               {broken, again},
	"Init_Kyma_Template":                     {broken, again},
	"Upgrade_Init_Kyma_Version":              {broken, again},
	"Update_Init_Kyma_Version":               {broken, again},
	"Overrides_From_Secrets_And_Config_Step": {broken, again},
	"Create_Runtime_Without_Kyma":            {again, again}, // every status of the Runtime Provisioner except 200 is temporary
	"Check_Runtime":                          {again, again},
	"Get_Kubeconfig":                         {again, again},
	"Inject_BTP_Operator_Credentials":        {again, again}, // the API of a new runtime may not be complete yet
	"Sync_Kubeconfig":                        {broken, again},
	"Create_Cluster_Configuration":           {broken, again},
	"Check_Cluster_Configuration":            {broken, again},
	"Apply_Kyma":                             {broken, again},
	"AVS_Create_External_Eval_Step":          {broken, again},
	"AVS_Tags":                               {again, again},

	"Upgrade_Shoot":                  {again, again},
	"Apply_Reconciler_Configuration": {broken, again},
	"CheckReconcilerState":           {broken, again},

	"Send_Notification":           {again, fine}, // the step ignores the answers of SPC
	"Send_Finished_Notification":  {again, fine},
	"AVS_Set_Maintenance":         {fine, again}, // a missing evaluation needs no maintenance
	"AVS_Restore_Status":          {fine, again},
	"Apply_Cluster_Configuration": {broken, again},
	"Upgrade_Cluster":             {again, again},

	"BTPOperator_Cleanup":          {again, again},
	"De-provision_AVS_Evaluations": {fine, fine}, // the step ignores the content of AvS's answer to a deletion
	"EDP_Deregistration":           {fine, again},
	"IAS_Deregistration":           {broken, again},
	"Delete_Kyma_Resource":         {broken, again},
	"Check_Kyma_Resource_Deleted":  {broken, again},
	"Deregister_Cluster":           {fine, again},
	"Check_Cluster_Deregistration": {fine, again},
	"Remove_Runtime":               {again, again}, // only the error err_db_not_found means that the runtime does not exist
	"Check_Runtime_Removal":        {again, again},
	"Release_Subscription":         {broken, again},
	"Delete_Kubeconfig":            {broken, again},

	"Create_LMS_Tenant":            {again, again},
	"IAS_Registration":             {broken, again},
	"Provision_Azure_Event_Hubs":   {broken, again},
	"Request_LMS_Certificates":     {again, again},
	"Create_Runtime":               {again, again},
	"Deprovision_Azure_Event_Hubs": {broken, again},
}

// orphans are the objects that remain when a worker is killed after a call and before its result. Their systems have no look-up, so the
// next attempt cannot find them. Each kill leaves exactly that many, and the operation still ends as without the fault. docs/operator.md
// describes how an operator finds them.
var orphans = map[string]struct {
	kind string
	n    int64
}{
	"AVS_Create_Internal_Eval_Step": {"avs/evaluation", 1},
	"AVS_Create_External_Eval_Step": {"avs/evaluation", 1},
}

// clean is the result of a scenario without faults.
type clean struct {
	run *Run
	// before and after are the objects of the external systems.
	before, after map[string]int64
	process       *process.Process
	seen          *record
}

func play(t *testing.T, s Scenario, seen *record) *clean {
	t.Helper()
	c := &clean{seen: seen, process: Processes(t, s.Kyma1)[s.Tested.Type]}
	prelude := s
	if n := len(s.Before); n > 0 {
		prelude.Before, prelude.Tested = s.Before[:n-1], s.Before[n-1]
		w, _ := Play(t, prelude, nil)
		c.before = w.Held()
	} else {
		c.before = NewWorld(t).Held()
	}
	w, run := Play(t, s, nil)
	c.run, c.after = run, w.Held()
	seen.look(w, run)
	if status := run.Status(); status.State != event.Succeeded || len(status.NotCompleted) > 0 {
		t.Fatalf("without faults it is %s, not completed %v: %+v", status.State, status.NotCompleted, status.Error)
	}
	return c
}

// calling returns the steps of the tested operation that call external systems, with the number of calls in their first execution.
func (c *clean) calling() map[string]int {
	calls := map[string]int{}
	for _, x := range c.run.Executions {
		if _, seen := calls[x.Command.Step]; !seen && len(x.Calls) > 0 {
			calls[x.Command.Step] = len(x.Calls)
		}
	}
	return calls
}

// TestFaults_EveryStep_IsTested injects a fault into every call of every step in turn, and then compares the observed calls with the
// descriptions.
func TestFaults_EveryStep_IsTested(t *testing.T) {
	t.Parallel()
	seen := &record{}
	t.Run("faults of systems", func(t *testing.T) { injectFaults(t, seen) })
	t.Run("other paths", func(t *testing.T) { takeOtherPaths(t, seen) })
	t.Run("descriptions", func(t *testing.T) { seen.compare(t) })
}

func injectFaults(t *testing.T, seen *record) {
	for _, s := range Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			c := play(t, s, seen)
			calling := c.calling()
			for _, step := range slices.Sorted(maps.Keys(calling)) {
				if _, _, same := Processes(t, false)[s.Tested.Type].Find(step); s.Kyma1 && same {
					continue // the scenario without Kyma 1 covers it
				}
				t.Run(step, func(t *testing.T) {
					t.Parallel()
					row, ok := answers[step]
					if !ok {
						t.Fatalf("the step %s has no row in the table of answers", step)
					}
					trials := []func(){
						func() { c.once(t, s, step, "500", Fault{Status: http.StatusInternalServerError}, again) },
						func() { c.once(t, s, step, "silence", Fault{Silent: true}, again) },
						func() { c.once(t, s, step, "404", Fault{Status: http.StatusNotFound}, row.notFound) },
						func() { c.once(t, s, step, "garbage", Fault{Garbage: true}, row.garbage) },
						func() { c.lost(t, s, step) },
						func() { c.forever(t, s, step) },
					}
					for n := range calling[step] {
						trials = append(trials, func() {
							c.once(t, s, step, fmt.Sprint("kill after call ", n+1), Fault{KillAfter: n + 1}, again)
						})
					}
					for _, try := range trials {
						try()
					}
				})
			}
		})
	}
}

// once injects a fault into the first execution of a step.
func (c *clean) once(t *testing.T, s Scenario, step, name string, f Fault, want meaning) {
	t.Helper()
	spoilt := false
	w, run := Play(t, s, func(_ string, cmd event.StepExecute) (*Fault, bool) {
		if spoilt || cmd.Step != step {
			return nil, false
		}
		spoilt = true
		return &f, false
	})
	c.check(t, w, run, step, name, want, f.KillAfter > 0)
}

// lost kills the worker after the first execution of a step, before it publishes its result. For Upgrade_Shoot this is defect 8.
func (c *clean) lost(t *testing.T, s Scenario, step string) {
	t.Helper()
	spoilt := false
	w, run := Play(t, s, func(_ string, cmd event.StepExecute) (*Fault, bool) {
		lose := !spoilt && cmd.Step == step
		spoilt = spoilt || lose
		return nil, lose
	})
	c.check(t, w, run, step, "kill before the result", again, true)
}

// forever answers every call of a step with 500.
func (c *clean) forever(t *testing.T, s Scenario, step string) {
	t.Helper()
	var first time.Time
	w, run := Play(t, s, func(_ string, cmd event.StepExecute) (*Fault, bool) {
		if cmd.Step != step {
			return nil, false
		}
		if first.IsZero() {
			first = cmd.FirstTriedAt
		}
		return &Fault{Status: http.StatusInternalServerError}, false
	})
	c.seen.look(w, run)
	const name = "500 for ever"
	definition := c.definition(t, step)
	c.ended(t, run, step, name, definition.OnTimeout)
	budget := definition.Retry.Timeout
	if budget == 0 {
		budget = c.process.Timeout
	}
	for _, f := range run.Steps() {
		over := f.Outcome == event.OutcomeFailed || f.Outcome == event.OutcomeNotCompleted
		if took := f.FinishedAt.Sub(first); f.Step == step && over && took > budget+time.Minute {
			t.Errorf("%s: given up after %s, the budget is %s", name, took, budget)
		}
	}
}

func (c *clean) definition(t *testing.T, step string) process.Step {
	t.Helper()
	i, j, ok := c.process.Find(step)
	if !ok {
		t.Fatalf("the process has no step %s", step)
	}
	return c.process.Stages[i].Steps[j]
}

func (c *clean) check(t *testing.T, w *World, run *Run, step, name string, want meaning, killed bool) {
	t.Helper()
	after := maps.Clone(c.after)
	if orphan, ok := orphans[step]; ok && killed {
		after[orphan.kind] += orphan.n
	}
	c.seen.look(w, run)
	status := run.Status()
	switch want {
	case again:
		if status.State != event.Succeeded || len(status.NotCompleted) > 0 {
			t.Errorf("%s: the operation is %s, not completed %v: %+v", name, status.State, status.NotCompleted, status.Error)
		}
		if diff := cmp.Diff(after, w.Held()); diff != "" {
			t.Errorf("%s: the external systems hold (-without the fault +with it):\n%s", name, diff)
		}
	case broken:
		c.ended(t, run, step, name, c.definition(t, step).OnFailure)
	case fine:
		if status.State != event.Succeeded || len(status.NotCompleted) > 0 {
			t.Errorf("%s: the operation is %s, not completed %v: %+v", name, status.State, status.NotCompleted, status.Error)
		}
	}
	for kind, n := range w.Held() {
		if limit := max(c.before[kind], after[kind]); n > limit {
			t.Errorf("%s: %d of %s, want at most %d", name, n, kind, limit)
		}
	}
}

// ended checks that the operation ended because of a step, in accordance with the step's policy.
func (c *clean) ended(t *testing.T, run *Run, step, name string, policy process.Policy) {
	t.Helper()
	status := run.Status()
	if policy == process.Skip {
		if status.State != event.Succeeded || !slices.Contains(status.NotCompleted, step) {
			t.Errorf("%s: the operation is %s, not completed %v, want succeeded without %s", name, status.State, status.NotCompleted, step)
		}
		return
	}
	failedAt := ""
	for _, f := range run.Steps() {
		if f.Outcome == event.OutcomeFailed {
			failedAt = f.Step
		}
	}
	if status.State != event.Failed || failedAt != step || status.Error == nil || status.Error.Message == "" {
		t.Errorf("%s: the operation is %s, the failed step is %q, want failed at %s: %+v", name, status.State, failedAt, step, status.Error)
	}
}
