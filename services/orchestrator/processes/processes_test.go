package processes_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/processes"
)

// stepsOf returns "stage/step/worker" for each step of a process.
func stepsOf(p *process.Process) []string {
	var steps []string
	for _, stage := range p.Stages {
		for _, s := range stage.Steps {
			steps = append(steps, stage.Name+"/"+s.Name+"/"+s.Worker)
		}
	}
	return steps
}

func load(t *testing.T) process.Set {
	t.Helper()
	set, err := process.Load(processes.FS)
	require.NoError(t, err)
	return set
}

// Steps with a plus are not in the original's tables.
func TestProcesses_Steps_HaveOriginalOrder(t *testing.T) {
	t.Parallel()
	set := load(t)
	for p, steps := range map[*process.Process][]string{
		set[event.Provision]: {
			"start/Starting/orchestrator",
			"create_runtime/Provision_Initialization/kyma",
			"create_runtime/Init_Kyma_Template/lifecycle-manager",
			"create_runtime/Resolve_Target_Secret/hyperscaler",
			"create_runtime/AVS_Create_Internal_Eval_Step/avs",
			"create_runtime/EDP_Registration/edp",
			"create_runtime/Overrides_From_Secrets_And_Config_Step/kyma",
			"create_runtime/BTPOperatorOverrides/btp",
			"create_runtime/BusolaMigratorOverrides/busola",
			"create_runtime/Create_Runtime_Without_Kyma/provisioner",
			"create_runtime/Check_Runtime/provisioner",
			"create_runtime/Get_Kubeconfig/provisioner",
			"create_runtime/Inject_BTP_Operator_Credentials/btp",
			"create_runtime/Sync_Kubeconfig/lifecycle-manager",
			"create_runtime/Create_Cluster_Configuration/reconciler",
			"check_kyma/Check_Cluster_Configuration/reconciler",
			"create_kyma_resource/Apply_Kyma/lifecycle-manager",
			"post_actions/AVS_Create_External_Eval_Step/avs",
			"post_actions/AVS_Tags/avs",
		},
		kyma1(t)[event.Provision]: {
			"start/Starting/orchestrator",
			"create_runtime/Provision_Initialization/kyma",
			"create_runtime/Resolve_Target_Secret/hyperscaler",
			"create_runtime/AVS_Create_Internal_Eval_Step/avs",
			"create_runtime/Create_LMS_Tenant/lms",
			"create_runtime/IAS_Registration/ias",
			"create_runtime/EDP_Registration/edp",
			"create_runtime/Provision_Azure_Event_Hubs/event-hubs",
			"create_runtime/Overrides_From_Secrets_And_Config_Step/kyma",
			"create_runtime/ServiceManagerOverrides/service-manager",
			"create_runtime/Request_LMS_Certificates/lms",
			"create_runtime/Create_Runtime/provisioner",
			"create_runtime/Check_Runtime/provisioner",
			"post_actions/AVS_Create_External_Eval_Step/avs",
			"post_actions/AVS_Tags/avs",
		},
		set[event.Deprovision]: {
			"init_step/Init_Step/orchestrator",
			"btp_operator_cleanup/BTPOperator_Cleanup/btp",
			"de_provision_avs_evaluations/De-provision_AVS_Evaluations/avs",
			"edp_deregistration/EDP_Deregistration/edp",
			"ias_deregistration/IAS_Deregistration/ias",
			"delete_kyma_resource/Delete_Kyma_Resource/lifecycle-manager",
			"check_kyma_resource_deleted/Check_Kyma_Resource_Deleted/lifecycle-manager",
			"deregister_cluster/Deregister_Cluster/reconciler",
			"check_cluster_deregistration/Check_Cluster_Deregistration/reconciler",
			"remove_runtime/Remove_Runtime/provisioner",
			"check_runtime_removal/Check_Runtime_Removal/provisioner",
			"release_subscription/Release_Subscription/hyperscaler",
			"delete_kubeconfig/Delete_Kubeconfig/lifecycle-manager",
			"remove_instance/Remove_Instance/broker",
		},
		set[event.Update]: {
			"cluster/Update_Kyma_Initialization/orchestrator",
			"cluster/Upgrade_Shoot/provisioner",
			"btp-operator/Update_Init_Kyma_Version/kyma",
			"btp-operator/Get_Kubeconfig/provisioner",
			"+btp-operator/Sync_Kubeconfig/lifecycle-manager",
			"btp-operator/BTPOperatorOverrides/btp",
			"+btp-operator/Inject_BTP_Operator_Credentials/btp",
			"btp-operator/Apply_Reconciler_Configuration/reconciler",
			"btp-operator-check/CheckReconcilerState/reconciler",
			"check/Check_Runtime/provisioner",
		},
		// Check_Cluster_Configuration checks the configuration of Apply_Cluster_Configuration, so it is the last step.
		set[event.UpgradeKyma]: {
			"+upgrade_kyma/Upgrade_Kyma_Initialisation/orchestrator",
			"+upgrade_kyma/Upgrade_Init_Kyma_Version/kyma",
			"+upgrade_kyma/Init_Kyma_Template/lifecycle-manager",
			"upgrade_kyma/Get_Kubeconfig/provisioner",
			"+upgrade_kyma/Sync_Kubeconfig/lifecycle-manager",
			"+upgrade_kyma/Apply_Kyma/lifecycle-manager",
			"upgrade_kyma/BTPOperatorOverrides/btp",
			"upgrade_kyma/Overrides_From_Secrets_And_Config_Step/kyma",
			"upgrade_kyma/BusolaMigratorOverrides/busola",
			"upgrade_kyma/Send_Notification/spc",
			"+upgrade_kyma/AVS_Set_Maintenance/avs",
			"upgrade_kyma/Apply_Cluster_Configuration/reconciler",
			"check_kyma/Check_Cluster_Configuration/reconciler",
			"+finally/AVS_Restore_Status/avs",
			"+finally/Send_Finished_Notification/spc",
		},
		set[event.UpgradeCluster]: {
			"+upgrade_cluster/Upgrade_Cluster_Initialisation/orchestrator",
			"upgrade_cluster/Send_Notification/spc",
			"+upgrade_cluster/AVS_Set_Maintenance/avs",
			"upgrade_cluster/Upgrade_Cluster/provisioner",
			"+check_runtime/Check_Runtime/provisioner",
			"+finally/AVS_Restore_Status/avs",
			"+finally/Send_Finished_Notification/spc",
		},
	} {
		for i := range steps {
			steps[i] = strings.TrimPrefix(steps[i], "+")
		}
		if diff := cmp.Diff(steps, stepsOf(p)); diff != "" {
			t.Errorf("%s: steps differ (-want +got):\n%s", p.Operation, diff)
		}
	}
	if got := set[event.UpgradeKyma].Timeout; got != 3*time.Hour {
		t.Errorf("an upgrade of Kyma may take %s, want 3h", got)
	}
}

func TestDeprovision_OptionalSteps_CannotFailIt(t *testing.T) {
	t.Parallel()
	mayFail := map[string]bool{
		"Init_Step": true, "Remove_Runtime": true, "Check_Runtime_Removal": true, "Remove_Instance": true,
	}
	for _, stage := range load(t)[event.Deprovision].Stages {
		for _, s := range stage.Steps {
			want := process.Skip
			if mayFail[s.Name] {
				want = process.Fail
			}
			if s.OnTimeout != want || s.OnFailure != want {
				t.Errorf("%s: onTimeout %s, onFailure %s, want %s", s.Name, s.OnTimeout, s.OnFailure, want)
			}
			if want == process.Skip && (s.Retry.Timeout == 0 || s.Retry.Timeout > 5*time.Minute) {
				t.Errorf("%s: a budget of %s, want at most 5m", s.Name, s.Retry.Timeout)
			}
		}
	}
}

func TestProvisioning_OnlyEDP_IsNotRequired(t *testing.T) {
	t.Parallel()
	for _, stage := range load(t)[event.Provision].Stages {
		for _, s := range stage.Steps {
			want := process.Fail
			if s.Name == "EDP_Registration" {
				want = process.Skip
			}
			if s.OnTimeout != want || s.OnFailure != want {
				t.Errorf("%s: onTimeout %s, onFailure %s, want %s", s.Name, s.OnTimeout, s.OnFailure, want)
			}
		}
	}
}

// After an outage the operations must not return together, and every step must still be tried several times within its budget.
func TestProcesses_CallsToSystems_BackOffWithinTheirBudgets(t *testing.T) {
	t.Parallel()
	for operation, p := range load(t) {
		for _, stage := range p.Stages {
			for _, s := range stage.Steps {
				if s.BuiltIn() || s.Worker == "broker" {
					continue
				}
				if s.Retry.Jitter == 0 {
					t.Errorf("%s: %s has no jitter", operation, s.Name)
				}
				tries, after := 1, s.Retry.Every
				for at := time.Duration(0); at < s.Retry.Timeout; tries++ {
					at += time.Duration(float64(after) * (1 + s.Retry.Jitter)) // the longest possible interval
					if s.Retry.Factor > 1 {
						after = min(s.Retry.Max, time.Duration(float64(after)*s.Retry.Factor))
					}
				}
				if tries < 5 {
					t.Errorf("%s: %s is tried only %d times within %s", operation, s.Name, tries, s.Retry.Timeout)
				}
			}
		}
	}
}

// skipped returns the steps that do not run.
func skipped(t *testing.T, p *process.Process, plan string, credentials ...string) []string {
	t.Helper()
	in := &process.Input{Operation: &event.Operation{Plan: event.Plan{Name: plan}, Credentials: credentials}}
	var names []string
	for _, stage := range p.Stages {
		for _, s := range stage.Steps {
			runs, err := s.Runs(in)
			require.NoError(t, err)
			if !runs {
				names = append(names, s.Name)
			}
		}
	}
	return names
}

func TestProcesses_Plans_DecideSkippedSteps(t *testing.T) {
	t.Parallel()
	const sm = event.CredentialsServiceManager
	tests := map[string]struct {
		operation   event.OperationType
		plan        string
		credentials []string
		want        []string
	}{
		"azure runs everything": {event.Provision, "azure", []string{sm}, nil},
		"without Service Manager credentials nothing is done for BTP": {
			event.Provision, "aws", nil,
			[]string{"BTPOperatorOverrides", "Inject_BTP_Operator_Credentials"},
		},
		"trial has no external evaluation": {event.Provision, "trial", []string{sm}, []string{"AVS_Create_External_Eval_Step"}},
		"free has no external evaluation":  {event.Provision, "free", []string{sm}, []string{"AVS_Create_External_Eval_Step"}},
		"preview has no Reconciler and no overrides": {event.Provision, "preview", []string{sm}, []string{
			"Overrides_From_Secrets_And_Config_Step", "BTPOperatorOverrides", "BusolaMigratorOverrides",
			"Create_Cluster_Configuration", "Check_Cluster_Configuration",
		}},
		"an own cluster is not created": {event.Provision, "own_cluster", []string{sm, event.CredentialsKubeconfig}, []string{
			"Resolve_Target_Secret", "EDP_Registration", "Create_Runtime_Without_Kyma", "Check_Runtime", "AVS_Tags",
		}},
		"deprovisioning azure runs everything": {event.Deprovision, "azure", []string{sm}, nil},
		"an own cluster is not removed": {event.Deprovision, "own_cluster", []string{sm}, []string{
			"EDP_Deregistration", "Remove_Runtime", "Check_Runtime_Removal", "Release_Subscription",
		}},
		"the shared subscription of trials stays": {event.Deprovision, "trial", []string{sm}, []string{"Release_Subscription"}},
		"free gives its subscription back":        {event.Deprovision, "free", []string{sm}, nil},
		"an own cluster is not upgraded": {event.UpgradeCluster, "own_cluster", nil, []string{
			"Send_Notification", "AVS_Set_Maintenance", "Upgrade_Cluster", "Check_Runtime",
			"AVS_Restore_Status", "Send_Finished_Notification",
		}},
		"preview keeps its Kyma": {event.UpgradeKyma, "preview", []string{sm}, []string{
			"Upgrade_Init_Kyma_Version", "Init_Kyma_Template", "Get_Kubeconfig", "Sync_Kubeconfig", "Apply_Kyma", "BTPOperatorOverrides", "Overrides_From_Secrets_And_Config_Step",
			"BusolaMigratorOverrides", "Send_Notification", "AVS_Set_Maintenance", "Apply_Cluster_Configuration", "Check_Cluster_Configuration",
			"AVS_Restore_Status", "Send_Finished_Notification",
		}},
		"an update of the context reaches the cluster": {event.Update, "azure", []string{sm}, []string{
			"Update_Init_Kyma_Version", "Get_Kubeconfig", "Sync_Kubeconfig", "BTPOperatorOverrides", "Inject_BTP_Operator_Credentials",
			"Apply_Reconciler_Configuration", "CheckReconcilerState",
		}},
		"preview is not in Reconciler": {event.Deprovision, "preview", nil, []string{
			"BTPOperator_Cleanup", "Deregister_Cluster", "Check_Cluster_Deregistration",
		}},
	}
	set := load(t)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := skipped(t, set[tc.operation], tc.plan, tc.credentials...)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("skipped steps differ (-want +got):\n%s", diff)
			}
		})
	}
}

// The intervals and budgets are those of docs/contracts/processes.md#retry-intervals-and-budgets. An optional deprovisioning step retries
// after errors for at most 5 minutes; its wait has the budget of that page.
func TestBudgets_EachProcess_AreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	type values struct{ RetryEvery, RetryTimeout, WaitEvery, WaitTimeout time.Duration }
	const s, m, h = time.Second, time.Minute, time.Hour
	want := map[event.OperationType]map[string]values{
		event.Provision: {
			"Provision_Initialization":      {5 * s, 5 * m, 0, 0},
			"Resolve_Target_Secret":         {10 * s, 10 * m, 0, 0},
			"AVS_Create_Internal_Eval_Step": {30 * s, 10 * m, 0, 0},
			"EDP_Registration":              {10 * s, 30 * m, 0, 0},
			"Create_Runtime_Without_Kyma":   {5 * s, h, 10 * s, h},
			"Check_Runtime":                 {m, 6 * h, 2 * m, 6 * h},
			"Get_Kubeconfig":                {m, h, 30 * s, h},
			"Check_Cluster_Configuration":   {m, 2 * h, 30 * s, 2 * h},
			"AVS_Create_External_Eval_Step": {30 * s, 20 * m, 0, 0},
			"AVS_Tags":                      {30 * s, 10 * m, 0, 0},
		},
		event.Deprovision: {
			"BTPOperator_Cleanup":          {10 * s, 5 * m, 10 * s, 35 * m}, // it ends after 30 minutes
			"De-provision_AVS_Evaluations": {10 * s, m, 0, 0},
			"EDP_Deregistration":           {10 * s, 5 * m, 0, 0},
			"IAS_Deregistration":           {5 * s, 5 * m, 0, 0},
			"Check_Kyma_Resource_Deleted":  {10 * s, 5 * m, 15 * s, 30 * m},
			"Deregister_Cluster":           {15 * s, 5 * m, 0, 0},
			"Check_Cluster_Deregistration": {m, 5 * m, 30 * s, 90 * m},
			"Remove_Runtime":               {10 * s, 5 * h, 10 * s, 5 * h},
			"Check_Runtime_Removal":        {m, 5 * h, 30 * s, 5 * h},
		},
		event.Update: {
			"Update_Init_Kyma_Version": {5 * s, m, 0, 0},
			"Upgrade_Shoot":            {10 * s, h, 10 * s, h},
			"CheckReconcilerState":     {m, 2 * h, 30 * s, 2 * h},
			"Check_Runtime":            {m, 40 * m, m, 40 * m},
		},
		event.UpgradeKyma: {
			"AVS_Set_Maintenance":         {10 * s, 10 * m, 0, 0},
			"Apply_Cluster_Configuration": {5 * s, h, 0, 0},
			"Check_Cluster_Configuration": {m, 2 * h, 30 * s, 2 * h},
		},
		event.UpgradeCluster: {
			"AVS_Set_Maintenance": {10 * s, 10 * m, 0, 0},
			"Upgrade_Cluster":     {5 * s, h, 5 * s, h},
			"Check_Runtime":       {m, 3 * h, m, 3 * h},
		},
	}
	set := load(t)
	for operation, steps := range want {
		p := set[operation]
		for name, v := range steps {
			i, j, ok := p.Find(name)
			if !ok {
				t.Errorf("%s: no step %s", operation, name)
				continue
			}
			step := p.Stages[i].Steps[j]
			if got := (values{step.Retry.Every, step.Retry.Timeout, step.Wait.Every, step.Wait.Timeout}); got != v {
				t.Errorf("%s: %s: %+v, want %+v", operation, name, got, v)
			}
		}
	}
	if got := set[event.Provision].Timeout; got != 24*h {
		t.Errorf("the provisioning's timeout is %s, want 24h", got)
	}
}

// A step that only polls repeats alone, and waiting does not use up its budget for errors.
func TestBudgets_StepThatIsRepeatedAlone_HasAWait(t *testing.T) {
	t.Parallel()
	for operation, p := range load(t) {
		for _, stage := range p.Stages {
			for _, s := range stage.Steps {
				if s.Retry.Scope == process.ScopeStep && !s.Waits() {
					t.Errorf("%s: %s has no wait", operation, s.Name)
				}
			}
		}
	}
}

// The only parameter that an update of an own cluster changes is its administrators.
func TestUpdate_ParametersOfAnOwnCluster_ReachReconciler(t *testing.T) {
	t.Parallel()
	for plan, want := range map[string][]string{
		"own_cluster": {"Update_Kyma_Initialization", "Get_Kubeconfig", "Apply_Reconciler_Configuration", "CheckReconcilerState"},
		"azure":       {"Update_Kyma_Initialization", "Upgrade_Shoot", "Check_Runtime"},
	} {
		in := &process.Input{Operation: &event.Operation{
			Type: event.Update, Plan: event.Plan{Name: plan}, Update: &event.Changes{Parameters: []byte(`{"administrators":["a"]}`)},
		}}
		var got []string
		for _, stage := range load(t)[event.Update].Stages {
			for _, s := range stage.Steps {
				runs, err := s.Runs(in)
				require.NoError(t, err)
				if runs {
					got = append(got, s.Name)
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("steps of %s differ (-want +got):\n%s", plan, diff)
		}
	}
}
