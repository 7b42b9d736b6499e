package steps_test

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/processes"
)

// took returns the time from the first execution of a step to the end of its last one.
func took(run *Run, step string) time.Duration {
	var first, last time.Time
	for _, f := range run.Steps() {
		if f.Step == step {
			if first.IsZero() {
				first = f.StartedAt
			}
			last = f.FinishedAt
		}
	}
	return last.Sub(first)
}

// Deviation B1: the step waits half an hour for service instances and bindings in a runtime, unless the account was deleted. Only then it
// removes their finalizers, and reports that.
func TestDeprovisioning_RuntimeInUse_WaitsThirtyMinutes(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		notCompleted []string
		waited       time.Duration
	}{
		"deprovision a runtime in use": {[]string{"BTPOperator_Cleanup"}, 30 * time.Minute},
		"suspend a trial in use":       {nil, 30 * time.Minute},
		"clean up an account":          {nil, 0},
	} {
		w, run := Play(t, scenario(t, name), nil)
		if status := run.Status(); status.State != event.Succeeded || !slices.Equal(status.NotCompleted, want.notCompleted) {
			t.Fatalf("%s: %s, not completed %v, want succeeded without %v", name, status.State, status.NotCompleted, want.notCompleted)
		}
		if held := w.Held(); held["runtimes/ServiceInstance"]+held["runtimes/ServiceBinding"] != 0 {
			t.Errorf("%s: left %v", name, held)
		}
		if d := took(run, "BTPOperator_Cleanup"); d < want.waited || d > want.waited+time.Minute {
			t.Errorf("%s: the step waited for %s, want %s", name, d, want.waited)
		}
		for _, f := range run.Steps() {
			const message = "1 service instance and 1 service binding were left after 30m0s; their finalizers were removed"
			if f.Outcome == event.OutcomeNotCompleted && (f.Error == nil || f.Error.Message != message) {
				t.Errorf("%s: error %+v, want %q", name, f.Error, message)
			}
		}
	}
}

// Deviation B1: with the overlay of the original's conditions, an ordinary deletion does not touch service instances.
func TestDeprovisioning_OriginalConditions_TouchNoServiceBinding(t *testing.T) {
	t.Parallel()
	set, err := process.Load(processes.FS, process.Named("examples", os.DirFS("../../examples/btp-cleanup-of-trials")))
	require.NoError(t, err)
	for name, runs := range map[string]bool{"deprovision a runtime in use": false, "suspend a trial in use": true, "clean up an account": true} {
		s := scenario(t, name)
		w := NewWorld(t)
		before := w.Do(set[event.Provision], s.Before[0], Left{}, Credentials(), nil).Left()
		s.Prepare(w, before)
		run := w.Do(set[event.Deprovision], s.Tested, before, Credentials(), nil)
		if status := run.Status(); status.State != event.Succeeded || len(status.NotCompleted) > 0 {
			t.Errorf("%s: %s, not completed %v: %+v", name, status.State, status.NotCompleted, status.Error)
		}
		ran := slices.ContainsFunc(run.Executions, func(x Execution) bool { return x.Command.Step == "BTPOperator_Cleanup" })
		if ran != runs {
			t.Errorf("%s: BTPOperator_Cleanup runs: %t, want %t", name, ran, runs)
		}
	}
}

// Deviation T1: the Reconciler and the Lifecycle Manager work in the cluster, so the cluster is removed after they end. Both have more
// time than the five-minute budget for errors.
func TestDeprovisioning_SlowRemovals_EndBeforeRuntimeRemoval(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		takes        time.Duration // each removal
		notCompleted []string
		waited       map[string]time.Duration
	}{
		"20 minutes": {20 * time.Minute, nil, map[string]time.Duration{
			"Check_Kyma_Resource_Deleted": 20 * time.Minute, "Check_Cluster_Deregistration": 20 * time.Minute,
		}},
		"50 minutes": {50 * time.Minute, []string{"Check_Kyma_Resource_Deleted"}, map[string]time.Duration{
			"Check_Kyma_Resource_Deleted": 30 * time.Minute, "Check_Cluster_Deregistration": 50 * time.Minute,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scenario(t, "deprovision")
			s.ReconcileTime = 2 * test.takes
			_, run := Play(t, s, nil)
			if status := run.Status(); status.State != event.Succeeded || !slices.Equal(status.NotCompleted, test.notCompleted) {
				t.Errorf("%s, not completed %v, want succeeded without %v", status.State, status.NotCompleted, test.notCompleted)
			}
			for step, want := range test.waited {
				if d := took(run, step); d < want || d > want+2*time.Minute {
					t.Errorf("%s was tried for %s, want %s", step, d, want)
				}
			}
			removedAfter(t, run, "Check_Cluster_Deregistration")
		})
	}
}

// A deregistration that never ends delays the removal for 90 minutes; one whose status cannot be read delays it for five.
func TestDeprovisioning_DeregistrationWithoutEnd_IsGivenUp(t *testing.T) {
	t.Parallel()
	const step = "Check_Cluster_Deregistration"
	for name, test := range map[string]struct {
		fault   *Fault
		waited  time.Duration
		message string
	}{
		"waiting": {nil, 90 * time.Minute, step + " has waited for 1h30m0s without success: the cluster is in the status reconcile_disabled"},
		"errors":  {&Fault{Status: http.StatusServiceUnavailable}, 5 * time.Minute, step + " was retried for 5m0s without success: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var world *World
			var runtime string
			s := scenario(t, "deprovision")
			s.Prepare = func(w *World, left Left) {
				var details struct {
					Reconciler struct {
						RuntimeID string `json:"runtimeId"`
					} `json:"reconciler"`
				}
				require.NoError(t, json.Unmarshal(left.Details, &details))
				world, runtime = w, details.Reconciler.RuntimeID
			}
			_, run := Play(t, s, func(_ string, c event.StepExecute) (*Fault, bool) {
				if c.Step != step {
					return nil, false
				}
				if c.StepAttempt == 1 {
					world.Admin(http.MethodPut, "/reconciler/v1/clusters/"+runtime+"/status", map[string]string{"status": "reconcile_disabled"}, nil)
				}
				return test.fault, false
			})
			if status := run.Status(); status.State != event.Succeeded || !slices.Equal(status.NotCompleted, []string{step}) {
				t.Errorf("%s, not completed %v, want succeeded without %s", status.State, status.NotCompleted, step)
			}
			if d := took(run, step); d < test.waited || d > test.waited+time.Minute {
				t.Errorf("the step was tried for %s, want %s", d, test.waited)
			}
			removedAfter(t, run, step)
			for _, f := range run.Steps() {
				if f.Outcome == event.OutcomeNotCompleted && (f.Error == nil || !strings.HasPrefix(f.Error.Message, test.message)) {
					t.Errorf("error %+v, want %q", f.Error, test.message)
				}
			}
		})
	}
}

// removedAfter checks that the runtime was removed, and only after the last execution of a step.
func removedAfter(t *testing.T, run *Run, step string) {
	t.Helper()
	removing := false
	for _, f := range run.Steps() {
		if f.Step == step && removing {
			t.Errorf("%s ran after Remove_Runtime", step)
		}
		removing = removing || f.Step == "Remove_Runtime"
	}
	if !removing {
		t.Error("the runtime was not removed")
	}
}
