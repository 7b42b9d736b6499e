package steps_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
)

// These tests cover defects of the original (docs/contracts/defects.md) by their numbers there. Other defects have their tests in the
// services.

// scenario returns the scenario with that name.
func scenario(t *testing.T, name string) Scenario {
	t.Helper()
	for _, s := range append(Scenarios(), Variants()...) {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no scenario %s", name)
	return Scenario{}
}

// spoil answers every execution of a step with a fault.
func spoil(step string, f Fault) Hook {
	return func(_ string, c event.StepExecute) (*Fault, bool) {
		if c.Step == step {
			return &f, false
		}
		return nil, false
	}
}

// after returns the first execution after the last one of a step; nil if there is none.
func after(run *Run, step string) *Execution {
	last := -1
	for i, x := range run.Executions {
		if x.Command.Step == step {
			last = i
		}
	}
	if last < 0 || last+1 == len(run.Executions) {
		return nil
	}
	return &run.Executions[last+1]
}

// 1 and 3.
func TestDefect_FailedStep_IsNotSkippedAndShowsError(t *testing.T) {
	t.Parallel()
	_, run := Play(t, scenario(t, "provision"), spoil("AVS_Create_Internal_Eval_Step", Fault{Status: http.StatusBadRequest}))
	status := run.Status()
	if status.State != event.Failed || status.Error == nil || status.Error.Component != "avs" || !strings.Contains(status.Error.Message, "400") {
		t.Errorf("the operation is %s: %+v", status.State, status.Error)
	}
	if x := after(run, "AVS_Create_Internal_Eval_Step"); x != nil {
		t.Errorf("%s ran after a step that failed", x.Command.Step)
	}
}

// 2 and 4b: other steps of the stage save in every round, and the budget is longer than the ten minutes after which the original
// restarted its clock.
func TestDefect_Outage_FailsAfterStepBudget(t *testing.T) {
	t.Parallel()
	_, run := Play(t, scenario(t, "provision"), spoil("AVS_Create_External_Eval_Step", Fault{Status: http.StatusServiceUnavailable}))
	status := run.Status()
	if status.State != event.Failed || status.Error == nil || status.Error.Reason != "err_keb_timeout" || !strings.Contains(status.Error.Message, "503") {
		t.Fatalf("the operation is %s: %+v", status.State, status.Error)
	}
	var first, last time.Time
	for _, f := range run.Steps() {
		if f.Step == "AVS_Create_External_Eval_Step" {
			if first.IsZero() {
				first = f.StartedAt
			}
			last = f.FinishedAt
		}
	}
	if took := last.Sub(first); took != 20*time.Minute {
		t.Errorf("given up after %s, the budget is 20m", took)
	}
}

// 4.
// AvS has no look-up: each kill leaves exactly one evaluation behind.
func TestDefect_CrashAfterCreation_CreatesOnce(t *testing.T) {
	t.Parallel()
	for step, object := range map[string]string{
		"AVS_Create_Internal_Eval_Step": "avs/evaluation", "AVS_Create_External_Eval_Step": "avs/evaluation",
		"Create_Runtime_Without_Kyma": "provisioner/runtime", "EDP_Registration": "edp/dataTenant",
	} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			s := scenario(t, "provision")
			plain, _ := Play(t, s, nil)
			killed := 0
			w, run := Play(t, s, func(_ string, c event.StepExecute) (*Fault, bool) {
				lose := c.Step == step && killed < 3
				if lose {
					killed++
				}
				return nil, lose
			})
			if got, want := w.Held()[object], plain.Held()[object]+int64(killed)*orphans[step].n; got != want || run.Status().State != event.Succeeded {
				t.Errorf("after %d kills there are %d of %s, want %d; the operation is %s", killed, got, object, want, run.Status().State)
			}
			var details struct {
				Provisioner struct {
					RuntimeID string `json:"runtimeId"`
				} `json:"provisioner"`
			}
			if err := json.Unmarshal(run.Status().Details, &details); err != nil || details.Provisioner.RuntimeID == "" {
				t.Errorf("the runtime id is lost: %s %v", run.Status().Details, err)
			}
		})
	}
}

// 4b.
func TestDefect_MissingRuntime_IsDeprovisioned(t *testing.T) {
	t.Parallel()
	s := scenario(t, "deprovision")
	_, run := Play(t, s, nil)
	// Repeat the deprovisioning with the saved details of the provisioning.
	w := NewWorld(t)
	set := Processes(t, false)
	provisioned := w.Do(set[event.Provision], s.Before[0], Left{}, Credentials(), nil)
	left := provisioned.Left()
	first := w.Do(set[event.Deprovision], s.Tested, left, Credentials(), nil)
	again := w.Do(set[event.Deprovision], Operation(event.Deprovision), left, Credentials(), nil)
	for _, r := range []*Run{run, first, again} {
		if status := r.Status(); status.State != event.Succeeded || len(status.NotCompleted) > 0 {
			t.Errorf("the deprovisioning is %s, not completed %v: %+v", status.State, status.NotCompleted, status.Error)
		}
	}
}

// 5.
func TestDefect_RepeatedStep_KeepsClusterID(t *testing.T) {
	t.Parallel()
	ids := map[string]bool{}
	collect := func(run *Run) {
		var details struct {
			BTP struct {
				ClusterID string `json:"smClusterId"`
			} `json:"btp"`
		}
		require.NoError(t, json.Unmarshal(run.Status().Details, &details))
		ids[details.BTP.ClusterID] = true
	}
	w := NewWorld(t)
	set := Processes(t, false)
	lost := 0
	run := w.Do(set[event.Provision], Operation(event.Provision), Left{}, Credentials(),
		func(_ string, c event.StepExecute) (*Fault, bool) {
			lose := (c.Step == "BTPOperatorOverrides" || c.Step == "Inject_BTP_Operator_Credentials") && lost < 4
			if lose {
				lost++
			}
			return nil, lose
		})
	collect(run)
	collect(w.Do(set[event.Update], Operation(event.Update), run.Left(), Credentials(), nil))
	if len(ids) != 1 || ids[""] {
		t.Errorf("cluster ids: %v", ids)
	}
}

// 17: a route that exists only in a description is a call that no simulator serves.
func TestDescribedCalls_Landscape_ServesAll(t *testing.T) {
	t.Parallel()
	for _, s := range Scenarios() {
		w, _ := Play(t, s, nil)
		for _, c := range w.NotServed() {
			t.Errorf("%s: %s %q is not served", s.Name, c.System, c.Operation)
		}
	}
}

// EDP and IAS are optional: neither a rejection nor an outage fails or blocks an order, and both are visible.
func TestOptionalSystem_RefusesOrIsDown_OrderSucceedsWithoutIt(t *testing.T) {
	t.Parallel()
	for step, name := range map[string]string{"EDP_Registration": "provision", "IAS_Registration": "provision Kyma 1"} {
		for _, status := range []int{http.StatusBadRequest, http.StatusServiceUnavailable} {
			t.Run(fmt.Sprint(step, status), func(t *testing.T) {
				t.Parallel()
				_, run := Play(t, scenario(t, name), spoil(step, Fault{Status: status}))
				got := run.Status()
				if got.State != event.Succeeded || !slices.Equal(got.NotCompleted, []string{step}) {
					t.Errorf("the order is %s, not completed %v: %+v", got.State, got.NotCompleted, got.Error)
				}
				noted := false
				for _, f := range run.Steps() {
					noted = noted || f.Step == step && f.Outcome == event.OutcomeNotCompleted && f.Error != nil
				}
				if !noted {
					t.Error("the history does not show the step as not completed, with its error")
				}
			})
		}
	}
}
