package processes_test

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/processes"
)

// kyma1 returns the built-in processes with the overlay for Kyma 1.
func kyma1(t *testing.T) process.Set {
	t.Helper()
	set, err := process.Load(processes.FS, process.Named("overlays", os.DirFS("overlays")))
	require.NoError(t, err)
	return set
}

func TestKyma1_IASRegistration_HasTimeForItsCalls(t *testing.T) {
	t.Parallel()
	p := kyma1(t)[event.Provision]
	i, j, ok := p.Find("IAS_Registration")
	require.True(t, ok)
	require.Equal(t, 5*time.Minute, p.Stages[i].Steps[j].Execution)
}

func TestKyma1_Deprovision_HasOriginalOrder(t *testing.T) {
	t.Parallel()
	// The other steps are those of later documents.
	older := []string{
		"Init_Step", "Deprovision_Azure_Event_Hubs", "De-provision_AVS_Evaluations", "IAS_Deregistration", "EDP_Deregistration", "Remove_Runtime",
	}
	var got, all []string
	for _, stage := range kyma1(t)[event.Deprovision].Stages {
		for _, s := range stage.Steps {
			all = append(all, s.Name)
			if slices.Contains(older, s.Name) {
				got = append(got, s.Name)
			}
		}
	}
	if diff := cmp.Diff(older, got); diff != "" {
		t.Errorf("steps differ (-want +got):\n%s", diff)
	}
	if all[1] != "Deprovision_Azure_Event_Hubs" {
		t.Errorf("steps %v: Deprovision_Azure_Event_Hubs must come right after Init_Step", all)
	}
	if without := len(stepsOf(load(t)[event.Deprovision])); len(all) != without+1 {
		t.Errorf("%d steps, want one more than the %d without the overlay", len(all), without)
	}
}

func TestKyma1_Plans_DecideSkippedSteps(t *testing.T) {
	t.Parallel()
	set := kyma1(t)
	for plan, want := range map[string]map[event.OperationType][]string{
		"azure": {event.Provision: nil, event.Deprovision: nil},
		"gcp":   {event.Provision: nil, event.Deprovision: nil},
		"trial": {
			event.Provision:   {"AVS_Create_Internal_Eval_Step", "Create_LMS_Tenant", "Request_LMS_Certificates", "AVS_Create_External_Eval_Step"},
			event.Deprovision: {"Deprovision_Azure_Event_Hubs", "Release_Subscription"},
		},
	} {
		for operation, steps := range want {
			got := skipped(t, set[operation], plan, event.CredentialsServiceManager)
			if diff := cmp.Diff(steps, got); diff != "" {
				t.Errorf("%s of plan %s: skipped steps differ (-want +got):\n%s", operation, plan, diff)
			}
		}
	}
}

func TestKyma1_Steps_HaveBudgetsAndPolicies(t *testing.T) {
	t.Parallel()
	type values struct {
		Every, Timeout, Wait time.Duration
		Policy               process.Policy
	}
	set := kyma1(t)
	for name, want := range map[string]values{
		"Create_LMS_Tenant":            {30 * time.Second, 3 * time.Minute, 0, process.Fail},
		"IAS_Registration":             {10 * time.Second, 30 * time.Minute, 0, process.Skip},
		"Provision_Azure_Event_Hubs":   {time.Minute, 30 * time.Minute, 30 * time.Minute, process.Fail},
		"ServiceManagerOverrides":      {10 * time.Second, 10 * time.Minute, 0, process.Fail},
		"Request_LMS_Certificates":     {5 * time.Second, 30 * time.Minute, time.Hour, process.Fail},
		"Create_Runtime":               {5 * time.Second, time.Hour, time.Hour, process.Fail},
		"Deprovision_Azure_Event_Hubs": {time.Minute, 5 * time.Minute, 30 * time.Minute, process.Skip},
	} {
		for _, operation := range []event.OperationType{event.Provision, event.Deprovision} {
			i, j, ok := set[operation].Find(name)
			if !ok {
				continue
			}
			s := set[operation].Stages[i].Steps[j]
			if got := (values{s.Retry.Every, s.Retry.Timeout, s.Wait.Timeout, s.OnTimeout}); got != want || s.OnFailure != want.Policy {
				t.Errorf("%s: %+v, onFailure %s, want %+v", name, got, s.OnFailure, want)
			}
			if s.Retry.Scope != process.ScopeStep {
				t.Errorf("%s repeats its stage, and with it the secrets of the earlier steps", name)
			}
		}
	}
}

func TestKyma1_Reconciler_IsNotCalled(t *testing.T) {
	t.Parallel()
	set := kyma1(t)
	for details, runs := range map[string]bool{`{}`: false, `{"reconciler":{}}`: false, `{"reconciler":{"clusterConfigurationVersion":1}}`: true} {
		in := &process.Input{Details: json.RawMessage(details), Operation: &event.Operation{
			Plan: event.Plan{Name: "azure"}, Credentials: []string{event.CredentialsServiceManager},
			Update: &event.Changes{Credentials: []string{event.CredentialsServiceManager}}, Upgrade: &event.Upgrade{},
		}}
		for operation, names := range map[event.OperationType][]string{
			event.Update:      {"Inject_BTP_Operator_Credentials", "Apply_Reconciler_Configuration", "CheckReconcilerState"},
			event.UpgradeKyma: {"Apply_Cluster_Configuration", "Check_Cluster_Configuration"},
		} {
			for _, name := range names {
				i, j, ok := set[operation].Find(name)
				if !ok {
					t.Fatalf("%s has no step %s", operation, name)
				}
				if got, err := set[operation].Stages[i].Steps[j].Runs(in); err != nil || got != runs {
					t.Errorf("%s with details %s: runs %t, error %v, want %t", name, details, got, err, runs)
				}
			}
		}
	}
}
