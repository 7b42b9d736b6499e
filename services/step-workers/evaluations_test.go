package stepworkers_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/kyma-project/keb/landscape"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/avs"
)

// Defect 4b.
func TestAVSRemoval_OneFails_RemovesTheOther(t *testing.T) {
	w := newWorld(t)
	op := deprovision(w.all(provisioning, w.order()))
	d := saved[avs.Details](t, op, avs.Name)
	if d.InternalID == 0 || d.ExternalID == 0 || d.InternalID == d.ExternalID {
		t.Fatalf("saved: %+v", d)
	}
	const name = "De-provision_AVS_Evaluations"
	for status, want := range map[int]string{http.StatusServiceUnavailable: "retry", http.StatusForbidden: "failed"} {
		r := w.during(fault{prefix: "/avs/api/v2/evaluationmetadata/" + strconv.FormatInt(d.InternalID, 10), status: status}, name, op)
		if string(r.Outcome) != want {
			t.Errorf("status %d: %s, want %s", status, r.Outcome, want)
		}
		op.Details = r.Then().Details
		if left := saved[avs.Details](t, op, avs.Name); left.ExternalID != 0 || left.FormerExternalID != 0 || left.InternalID != 0 || left.FormerInternalID != d.InternalID {
			t.Errorf("status %d: saved %+v", status, left)
		}
		w.holds("avs/evaluation", 1)
	}
	w.all([]string{name}, op)
	w.holds("avs/evaluation", 0)
}

func TestEvaluations_LookUpIsOn_AreFoundByName(t *testing.T) {
	w := newWorldWith(t, landscape.Config{AvSLookUp: true}, map[string]string{"KEB_AVS_LOOK_UP": "true"})
	steps := []string{"AVS_Create_Internal_Eval_Step", "AVS_Create_External_Eval_Step"}
	op := w.order()
	for _, name := range steps {
		w.run(name, op) // the result is lost
		op = w.all([]string{name}, op)
	}
	w.made("avs/evaluation", 2)
	op.Details = nil
	w.all([]string{"De-provision_AVS_Evaluations"}, deprovision(op))
	w.holds("avs/evaluation", 0)
}

// planned returns an order of a plan with the data that these workers need.
func (w *world) planned(plan string) workertest.Operation {
	op := w.order()
	op.Plan = event.Plan{Name: plan}
	if plan == "own_cluster" {
		op.Runtime = event.Runtime{Name: "demo", ShootName: "own-1", ShootDomain: "own.example.com"}
	}
	return op
}

// plans are all plans.
var plans = []string{"azure", "azure_lite", "aws", "gcp", "openstack", "trial", "free", "preview", "own_cluster"}

// Defect 7: the URL of the external evaluation ends without a blank.
func TestEvaluations_EachPlan_RequestsAreGolden(t *testing.T) {
	for _, plan := range plans {
		t.Run(plan, func(t *testing.T) {
			w := newWorld(t)
			op := w.all([]string{"AVS_Create_Internal_Eval_Step", "AVS_Create_External_Eval_Step"}, w.planned(plan))
			w.golden("avs_"+plan+"_provision", "/avs")
			w.all([]string{"De-provision_AVS_Evaluations"}, deprovision(op))
			w.golden("avs_"+plan+"_deprovision", "/avs")
		})
	}
}

func TestEvaluations_AllSettings_RequestsAreGolden(t *testing.T) {
	w := newWorldWith(t, landscape.Config{}, map[string]string{
		"KEB_AVS_INTERNAL_SERVICE": "internal-service", "KEB_AVS_EXTERNAL_SERVICE": "external-service",
		"KEB_AVS_INTERNAL_TAGS":          `[{"content":"kyma","tag_class_id":5,"tag_class_name":"product"}]`,
		"KEB_AVS_EXTERNAL_TAGS":          `[{"content":"kyma","tag_class_id":6,"tag_class_name":"product"},{"content":"x","tag_class_id":7,"tag_class_name":""}]`,
		"KEB_AVS_TRIAL_TESTER_ACCESS_ID": "11", "KEB_AVS_TRIAL_GROUP_ID": "12", "KEB_AVS_TRIAL_PARENT_ID": "13",
	})
	op := w.all([]string{"AVS_Create_Internal_Eval_Step", "AVS_Create_External_Eval_Step"}, w.planned("azure"))
	w.golden("avs_azure_provision_settings", "/avs")
	w.all([]string{"De-provision_AVS_Evaluations"}, deprovision(op))
	w.golden("avs_azure_deprovision_settings", "/avs")
	op = w.all([]string{"AVS_Create_Internal_Eval_Step"}, w.planned("trial"))
	w.golden("avs_trial_provision_settings", "/avs")
	w.all([]string{"De-provision_AVS_Evaluations"}, deprovision(op))
	w.golden("avs_trial_deprovision_settings", "/avs")
}

func TestEvaluations_Upgrades_RequestsAreGolden(t *testing.T) {
	w := newWorld(t)
	op := w.all(provisioning, w.order())
	w.golden("avs_azure_provision_tags", "/avs")
	w.all([]string{"AVS_Set_Maintenance", "AVS_Restore_Status"}, w.upgrade(op, event.UpgradeKyma, "k-1"))
	w.golden("avs_azure_upgradeKyma", "/avs")
	w.all([]string{"AVS_Set_Maintenance", "AVS_Restore_Status"}, w.upgrade(op, event.UpgradeCluster, "c-1"))
	w.golden("avs_azure_upgradeCluster", "/avs")
}

// A2: additional tags are disabled by default.
func TestTags_ByDefault_AreNotSent(t *testing.T) {
	w := newWorldWith(t, landscape.Config{}, map[string]string{"KEB_AVS_TAGS_ENABLED": ""})
	op := w.all([]string{"AVS_Create_Internal_Eval_Step"}, w.order())
	if calls := w.calls(func() { w.run("AVS_Tags", op) }); len(calls) != 0 {
		t.Errorf("%d calls, want none", len(calls))
	}
}
