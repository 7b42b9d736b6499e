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

// These tests cover defects of the original (docs/contracts/defects.md) by their numbers there. The defects of the broker and of the
// orchestrator have their tests in these services.

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

// 4b.
func TestDefect_OneEvaluationFails_RemovesTheOther(t *testing.T) {
	t.Parallel()
	s := scenario(t, "deprovision")
	w := NewWorld(t)
	set := Processes(t, false)
	provisioned := w.Do(set[event.Provision], s.Before[0], Left{}, Credentials(), nil)
	var details struct {
		AvS struct {
			InternalID json.Number `json:"internalId"`
		} `json:"avs"`
	}
	if err := json.Unmarshal(provisioned.Status().Details, &details); err != nil || details.AvS.InternalID == "" {
		t.Fatalf("%s: %v", provisioned.Status().Details, err)
	}
	w.Refuse("/avs/api/v2/evaluationmetadata/" + details.AvS.InternalID.String())
	run := w.Do(set[event.Deprovision], s.Tested, provisioned.Left(), Credentials(), nil)
	if !slices.Contains(run.Status().NotCompleted, "De-provision_AVS_Evaluations") {
		t.Errorf("not completed %v, want De-provision_AVS_Evaluations", run.Status().NotCompleted)
	}
	if n := w.Held()["avs/evaluation"]; n != 1 {
		t.Errorf("%d evaluations are left, want the one that cannot be removed", n)
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

// 6.
func TestDefect_SubaccountCase_IsRegisteredAgain(t *testing.T) {
	t.Parallel()
	s := scenario(t, "provision")
	s.Tested.Context.SubaccountID = "SA-Upper"
	w := NewWorld(t)
	set := Processes(t, false)
	if run := w.Do(set[event.Provision], s.Tested, Left{}, Credentials(), nil); run.Status().State != event.Succeeded {
		t.Fatalf("%+v", run.Status())
	}
	// Another instance of the account finds the registration of the first one.
	second := s.Tested
	second.InstanceID, second.Runtime.ShootName = "5b7e1d0c-3f54-4b8e-8a46-1c9d2e7f6a21", "c-9999999"
	if run := w.Do(set[event.Provision], second, Left{}, Credentials(), nil); run.Status().State != event.Succeeded {
		t.Errorf("%+v", run.Status().Error)
	}
	if n := w.Held()["edp/dataTenant"]; n != 1 {
		t.Errorf("%d tenants of one account", n)
	}
}

// 7.
func TestDefect_ExternalEvaluation_HasCleanURL(t *testing.T) {
	t.Parallel()
	w, run := Play(t, scenario(t, "provision"), nil)
	found := false
	for _, o := range w.Objects("avs") {
		if url, _ := o["url"].(string); url != "" {
			found = true
			if url != strings.TrimSpace(url) || !strings.HasSuffix(url, "/healthz/ready") {
				t.Errorf("the address is %q", url)
			}
		}
	}
	if !found {
		t.Error("no evaluation has an address")
	}
	if status := run.Status(); status.State != event.Succeeded || len(status.Details) == 0 {
		t.Errorf("after the tags the operation is %s with the details %s", status.State, status.Details)
	}
}

// 8.
func TestDefect_RestartDuringUpdate_Continues(t *testing.T) {
	t.Parallel()
	for _, f := range []Fault{{}, {KillAfter: 1}} {
		spoilt := false
		_, run := Play(t, scenario(t, "update"), func(_ string, c event.StepExecute) (*Fault, bool) {
			if c.Step != "Upgrade_Shoot" || spoilt {
				return nil, false
			}
			spoilt = true
			return &f, true
		})
		if status := run.Status(); status.State != event.Succeeded {
			t.Errorf("%+v: the update is %s: %+v", f, status.State, status.Error)
		}
	}
}

// 9.
func TestDefect_ExpiredToken_RepeatsWholeCall(t *testing.T) {
	t.Parallel()
	s := scenario(t, "provision")
	usual, _ := Play(t, s, nil)
	const creation = 1
	w, run := Play(t, s, func(_ string, c event.StepExecute) (*Fault, bool) {
		if c.Step == "AVS_Create_Internal_Eval_Step" {
			return &Fault{Status: http.StatusUnauthorized, Only: creation}, false
		}
		return nil, false
	})
	for _, x := range run.Executions {
		if x.Command.Step == "AVS_Create_Internal_Eval_Step" && (x.Command.StepAttempt > 1 || len(x.Calls) != creation+1) {
			t.Errorf("attempt %d made the calls %v, want the creation twice in one attempt", x.Command.StepAttempt, x.Calls)
		}
	}
	names := func(w *World) (names []string) {
		for _, o := range w.Objects("avs") {
			name, _ := o["name"].(string)
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
	if got, want := names(w), names(usual); !slices.Equal(got, want) || got[0] == "" {
		t.Errorf("evaluations %q, want %q", got, want)
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
