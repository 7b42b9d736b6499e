package stepworkers_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker/workertest"
)

const (
	retry     = event.OutcomeRetry
	failed    = event.OutcomeFailed
	succeeded = event.OutcomeSucceeded
	skipped   = event.OutcomeSkipped
)

type talk struct {
	step, prefix              string
	refused, missing, garbage event.Outcome
}

// empty returns the outcome of an answer without a body, which is valid only for a call without a result.
func (t talk) empty() event.Outcome {
	if t.step == "Deregister_Cluster" {
		return succeeded
	}
	return t.garbage
}

// talks lists the system of each step and the outcomes when that system rejects (400), finds nothing (404), or returns an invalid answer
// (200). An outage (503, 429, lost answers) always causes a retry, and so does every status of the Runtime Provisioner.
var talks = []talk{
	{"Provision_Initialization", "/artifacts", failed, failed, retry},
	{"Provision_Initialization", "/k8s/control-plane", failed, failed, retry},
	{"Upgrade_Init_Kyma_Version", "/artifacts", failed, failed, retry},
	{"Update_Init_Kyma_Version", "/artifacts", failed, failed, retry},
	{"Resolve_Target_Secret", "/k8s/gardener", failed, failed, retry},
	{"AVS_Create_Internal_Eval_Step", "/avs/api", failed, failed, retry},
	{"AVS_Create_Internal_Eval_Step", "/avs/oauth2", retry, retry, retry},
	{"EDP_Registration", "/edp/namespaces", failed, retry, retry},
	{"EDP_Registration", "/edp/oauth2", retry, retry, retry},
	{"Overrides_From_Secrets_And_Config_Step", "/k8s/control-plane", failed, failed, retry},
	{"Create_Runtime_Without_Kyma", "/provisioner", retry, retry, retry},
	{"Check_Runtime", "/provisioner", retry, retry, retry},
	{"Get_Kubeconfig", "/provisioner", retry, retry, retry},
	{"Inject_BTP_Operator_Credentials", "/k8s/runtimes", retry, retry, retry},
	{"Create_Cluster_Configuration", "/reconciler", failed, failed, retry},
	{"Check_Cluster_Configuration", "/reconciler", failed, failed, retry},
	{"Init_Kyma_Template", "/k8s/control-plane", failed, failed, retry},
	{"Sync_Kubeconfig", "/k8s/control-plane", failed, failed, retry},
	{"Apply_Kyma", "/k8s/control-plane", failed, failed, retry},
	{"Delete_Kubeconfig", "/k8s/control-plane", failed, failed, retry},
	{"AVS_Create_External_Eval_Step", "/avs/api", failed, failed, retry},
	{"AVS_Tags", "/avs/api", failed, failed, succeeded},
	{"AVS_Tags", "/provisioner", retry, retry, retry},
	{"Upgrade_Shoot", "/provisioner", retry, retry, retry},
	{"Apply_Reconciler_Configuration", "/reconciler", failed, failed, retry},
	{"CheckReconcilerState", "/reconciler", failed, failed, retry},
	{"Send_Notification", "/spc", retry, retry, succeeded},
	{"AVS_Set_Maintenance", "/avs/api", failed, succeeded, retry},
	{"Apply_Cluster_Configuration", "/reconciler", failed, failed, retry},
	{"AVS_Restore_Status", "/avs/api", failed, succeeded, retry},
	{"Send_Finished_Notification", "/spc", retry, retry, succeeded},
	{"Upgrade_Cluster", "/provisioner", retry, retry, retry},
	{"BTPOperator_Cleanup", "/provisioner", retry, retry, retry},
	{"BTPOperator_Cleanup", "/k8s/runtimes", retry, succeeded, retry},
	{"De-provision_AVS_Evaluations", "/avs/api", failed, succeeded, succeeded},
	{"EDP_Deregistration", "/edp/namespaces", failed, succeeded, retry},
	{"IAS_Deregistration", "/ias", failed, failed, retry},
	{"Delete_Kyma_Resource", "/k8s/control-plane", failed, failed, retry},
	{"Check_Kyma_Resource_Deleted", "/k8s/control-plane", failed, failed, retry},
	{"Deregister_Cluster", "/reconciler", failed, skipped, retry},
	{"Check_Cluster_Deregistration", "/reconciler", failed, succeeded, retry},
	{"Remove_Runtime", "/provisioner", retry, retry, retry},
	{"Check_Runtime_Removal", "/provisioner", retry, retry, retry},
	{"Release_Subscription", "/k8s/gardener", failed, failed, retry},
}

func TestSteps_Errors_RetryOrFail(t *testing.T) {
	w := newWorld(t)
	w.seedOverrides("2.21.0")
	through := func(names []string, op workertest.Operation) workertest.Operation {
		for _, name := range names {
			for _, talk := range talks {
				if talk.step == name {
					w.disturb(talk, op)
				}
			}
			w.build(w.url)
			op = w.all([]string{name}, op)
		}
		return op
	}
	op := through(provisioning, w.order())
	op = through(updating, w.update(op, "u-1"))
	op = through(upgradingKyma, w.upgrade(op, event.UpgradeKyma, "k-1"))
	op = through(upgradingCluster, w.upgrade(op, event.UpgradeCluster, "c-1"))
	through(deprovisioning, deprovision(op))
	w.noSecrets()
}

// disturb runs a step while its system fails.
func (w *world) disturb(talk talk, op workertest.Operation) {
	w.t.Helper()
	for what, f := range map[string]struct {
		fault
		want event.Outcome
	}{
		"an outage":      {fault{status: http.StatusServiceUnavailable, body: `{"message":"down $BODY"}`}, retry},
		"too many":       {fault{status: http.StatusTooManyRequests}, retry},
		"a refusal":      {fault{status: http.StatusBadRequest, body: `{"status":400,"message":"bad $BODY"}`}, talk.refused},
		"nothing there":  {fault{status: http.StatusNotFound, body: `{"error":"no $BODY"}`}, talk.missing},
		"another answer": {fault{status: http.StatusOK, body: `<html>$BODY</html>`}, talk.garbage},
		"no body":        {fault{status: http.StatusOK}, talk.empty()},
	} {
		f.prefix = talk.prefix
		w.build(w.url)
		w.door.fault.Store(&f.fault)
		r := w.run(talk.step, op)
		w.door.fault.Store(nil)
		if r.Outcome != f.want {
			w.t.Errorf("%s, %s at %s: %s, want %s (%+v)", talk.step, what, talk.prefix, r.Outcome, f.want, r.Error)
		}
		if r.Outcome == retry && (r.Error == nil || r.RetryAfter <= 0) {
			w.t.Errorf("%s, %s at %s: retry after %s without a reason", talk.step, what, talk.prefix, r.RetryAfter)
		}
		if r.Outcome == failed && r.Error.Component == "" {
			w.t.Errorf("%s, %s at %s: failed without a component", talk.step, what, talk.prefix)
		}
	}
}

// The system does its work, but the answer is lost: each object must still exist only once. Only AvS, which has no look-up, has one orphan
// for each lost answer, and EDP replaces its data tenant.
func TestSteps_LostAnswers_CreateOnce(t *testing.T) {
	w := newWorld(t)
	op := w.order()
	for i, name := range slices.Concat(provisioning, deprovisioning) {
		if i == len(provisioning) {
			for kind, want := range map[string]int64{
				"avs/evaluation": 2 + 2, "edp/dataTenant": 1 + 1, "edp/metadata": 4, "provisioner/runtime": 1,
				"director/runtime": 1, "reconciler/cluster": 1, "control-plane/Kyma": 1, "gardener/Shoot": 1,
			} {
				if got := w.created()[kind]; got != want {
					t.Errorf("%s: %d were created, want %d", kind, got, want)
				}
			}
			op = deprovision(op)
		}
		for _, talk := range talks {
			if talk.step != name {
				continue
			}
			w.build(w.url)
			r := w.during(fault{prefix: talk.prefix, status: http.StatusInternalServerError, after: true}, name, op)
			if r.Outcome != retry {
				t.Errorf("%s, answer of %s lost: %s, want retry (%+v)", name, talk.prefix, r.Outcome, r.Error)
			}
			op.Details = r.Then().Details
		}
		w.build(w.url)
		op = w.all([]string{name}, op)
	}
	for kind, n := range w.objects() {
		switch kind {
		case "avs/evaluation":
			if n != 2 {
				t.Errorf("%d evaluations are left, want one orphan for each of the two lost answers", n)
			}
		case "edp/dataTenant", "provisioner/runtime", "reconciler/cluster", "control-plane/Kyma", "gardener/Shoot":
			t.Errorf("%s: %d left", kind, n)
		}
	}
}
