package stepworkers_test

import (
	"cmp"
	"net/http"
	"testing"

	"github.com/kyma-project/keb/services/step-workers/edp"
)

// Defect 6: the replacement uses the same name as the creation, in lower case.
func TestRegistration_Existing_IsReplacedUnread(t *testing.T) {
	w := newWorld(t)
	w.all([]string{"EDP_Registration"}, w.order())
	w.golden("edp_azure_provision", "/edp")
	// A second run of a command must leave a registration behind: its result may not count.
	op := w.all([]string{"EDP_Registration"}, w.order())
	w.golden("edp_azure_provision_conflict", "/edp")
	equal(t, "saved", edp.Details{Registered: true, Tenant: "sa-1"}, saved[edp.Details](t, op, edp.Name))
	w.holds("edp/dataTenant", 1)
	w.holds("edp/metadata", 4)
}

func TestRegistration_EachPlan_RequestsAreGolden(t *testing.T) {
	for _, plan := range plans {
		if plan == "own_cluster" { // its process has no such step
			continue
		}
		t.Run(plan, func(t *testing.T) {
			w := newWorld(t)
			op := w.all([]string{"EDP_Registration"}, w.planned(plan))
			w.golden("edp_"+plan+"_provision", "/edp")
			w.all([]string{"EDP_Deregistration"}, deprovision(op))
			w.golden("edp_"+plan+"_deprovision", "/edp")
		})
	}
}

func TestRegistration_EachPlatform_RequestsAreGolden(t *testing.T) {
	for _, region := range []string{"", "k8s-eu10", "neo-eu1"} {
		w := newWorld(t)
		op := w.order()
		op.Context.PlatformRegion = region
		w.all([]string{"EDP_Registration"}, op)
		w.golden("edp_azure_provision_region_"+cmp.Or(region, "none"), "/edp")
	}
}

func TestRegistration_HalfDone_IsReplaced(t *testing.T) {
	w := newWorld(t)
	if r := w.during(fault{prefix: "/edp/namespaces/kyma-dev/dataTenants/sa-1", status: http.StatusServiceUnavailable}, "EDP_Registration", w.order()); r.Outcome != retry {
		t.Fatalf("without metadata: %s", r.Outcome)
	}
	w.all([]string{"EDP_Registration"}, w.order())
	w.holds("edp/dataTenant", 1)
	w.holds("edp/metadata", 4)
}

func TestRegistration_TwoInstancesOfASubaccount_ShareOneTenant(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"} {
		op := w.order()
		op.InstanceID = id
		w.all([]string{"EDP_Registration"}, op)
	}
	w.holds("edp/dataTenant", 1)
	w.holds("edp/metadata", 4)
}

// Defect K: the data tenant belongs to the subaccount, whose other instances still need it.
func TestDeregistration_SubaccountHasOtherInstances_TenantStays(t *testing.T) {
	w := newWorld(t)
	op := deprovision(w.all([]string{"EDP_Registration"}, w.order()))
	op.Neighbours = 1
	w.expect("EDP_Deregistration", op, skipped)
	w.holds("edp/dataTenant", 1)
	w.holds("edp/metadata", 4)
	op.Neighbours = 0
	w.all([]string{"EDP_Deregistration"}, op)
	w.holds("edp/dataTenant", 0)
}
