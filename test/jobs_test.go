package test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/test/internal/harness"
)

// report is the output of a job.
type report struct {
	Found, Started, Completed, Skipped int
	Failed                             []struct{ Instance, Reason string }
}

// job runs a job that must succeed.
func job(t *testing.T, sys *harness.System, args ...string) report {
	t.Helper()
	process := sys.Run(append([]string{"job", "-o", "json"}, args...)...)
	if code := process.ExitCode(limit); code != 0 {
		t.Fatalf("job %v ended with %d:\n%s", args, code, process.Output())
	}
	var r report
	require.NoErrorf(t, json.Unmarshal([]byte(process.Output()), &r), "job %v printed %q", args, process.Output())
	return r
}

func TestJobs_Retrigger_RemovesLeftovers(t *testing.T) {
	t.Parallel()
	const step = "De-provision_AVS_Evaluations"
	sys := harness.Start(t, harness.Options{Overlays: []string{"testdata/longer-budgets"}})
	o := harness.Azure()
	sys.PollEnd(o, sys.Provision(o), osb.StateSucceeded, limit)
	sys.Fault("avs", outage)
	first := sys.Deprovision(o)
	sys.PollEnd(o, first, osb.StateSucceeded, limit)
	op := sys.AwaitEnd(first, "succeeded", limit)
	// The instance is gone for the platform, and kept until the rest is done.
	if diff := cmp.Diff([]string{step, "Remove_Instance"}, op.NotCompleted); diff != "" {
		t.Errorf("not completed (-want +got):\n%s", diff)
	}
	if skipped := op.At(t, step); skipped.State != "not completed" || skipped.Attempts < 2 || skipped.Error == nil {
		t.Errorf("the step is %+v, want it not completed after retries, with its error", skipped)
	}
	if _, err := sys.Platform().Deprovision(t.Context(), o.InstanceID, harness.ServiceID, o.PlanID); harness.StatusOf(err) != harness.Gone {
		t.Errorf("a second deprovisioning is answered %v, want 410", err)
	}

	if dry := job(t, sys, "deprovision-retrigger", "--dry-run"); dry.Found != 1 || dry.Started != 1 {
		t.Errorf("dry run: %+v, want one found", dry)
	}
	sys.Fault("avs", healthy)
	if got := job(t, sys, "deprovision-retrigger", "--wait"); got.Found != 1 || got.Completed != 1 {
		t.Errorf("retrigger: %+v, want one completed", got)
	}
	checkNothingLeft(t, sys, o)
	second := newestOf(t, sys, o, first)
	if len(second.NotCompleted) > 0 || second.State != "succeeded" {
		t.Errorf("the new deprovisioning is %s, not completed %v", second.State, second.NotCompleted)
	}
	// Succeeded steps do not run again.
	ran := map[string]bool{}
	for _, entry := range second.History {
		if entry.Outcome == "succeeded" && entry.Step != "" {
			ran[entry.Step] = true
		}
	}
	if !ran[step] || !ran["Remove_Instance"] || ran["Remove_Runtime"] || ran["EDP_Deregistration"] {
		t.Errorf("the new deprovisioning has run %v, want only what was not completed", ran)
	}
	if again := job(t, sys, "deprovision-retrigger"); again.Found != 0 {
		t.Errorf("once more: %+v, want nothing left", again)
	}
}

// checkNothingLeft checks that all objects of an order are removed. Its account at the hyperscaler may be free again.
func checkNothingLeft(t *testing.T, sys *harness.System, o *harness.Order) {
	t.Helper()
	if left := sys.Footprints([]*harness.Order{o})[0].WithoutAccount(); len(left) > 0 {
		t.Errorf("left in the landscape: %v", left)
	}
}

// newestOf returns the deprovisioning of an instance that is not the named one.
func newestOf(t *testing.T, sys *harness.System, o *harness.Order, other string) *harness.Operation {
	t.Helper()
	list := harness.Get[struct {
		Data []struct{ ID, Type string }
	}](sys, "http://"+sys.OperatorAddr+"/operations?type=deprovision&instance="+o.InstanceID)
	for _, op := range list.Data {
		if op.ID != other {
			return sys.Operation(op.ID)
		}
	}
	t.Fatalf("there is no second deprovisioning: %+v", list)
	return nil
}

func TestJobs_DeletedSubaccount_RuntimesAreRemoved(t *testing.T) {
	t.Parallel()
	sys := harness.Start(t, harness.Options{})
	orders := []*harness.Order{harness.Azure(), harness.Azure()}
	for _, o := range orders {
		sys.PollEnd(o, sys.Provision(o), osb.StateSucceeded, limit)
	}
	if got := job(t, sys, "subaccount-cleanup"); got.Found != 0 {
		t.Errorf("before anything was deleted: %+v", got)
	}
	sys.DeleteSubaccount(orders[0].Subaccount)
	if got := job(t, sys, "subaccount-cleanup", "--wait"); got.Found != 1 || got.Completed != 1 {
		t.Errorf("clean-up: %+v, want one completed", got)
	}
	checkNothingLeft(t, sys, orders[0])
	if diff := cmp.Diff([]harness.Footprint{harness.Complete()}, sys.Footprints(orders[1:])); diff != "" {
		t.Errorf("the runtime of the other sub-account after the clean-up (-want +got):\n%s", diff)
	}
}
