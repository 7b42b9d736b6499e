package stepworkers_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSteps_ProvisionAndDeprovision_Succeed(t *testing.T) {
	w := newWorld(t)
	before := w.objects()
	op := w.all(provisioning, w.order())
	held := w.objects()
	for kind, want := range map[string]int64{
		"avs/evaluation": 2, "edp/dataTenant": 1, "edp/metadata": 4, "provisioner/runtime": 1, "director/runtime": 1,
		"reconciler/cluster": 1, "control-plane/Kyma": 1, "gardener/Shoot": 1, "runtimes/Secret": 1,
	} {
		if held[kind] != want {
			t.Errorf("%s: %d, want %d; all: %v", kind, held[kind], want, held)
		}
	}
	w.all(deprovisioning, deprovision(op))
	after := w.objects()
	// The Provisioner keeps its history.
	delete(after, "provisioner/operation")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("objects are left (-before +after):\n%s", diff)
	}
	w.noSecrets()
}

// A provisioning that was killed before it saved anything leaves no objects after the removal of the instance, except for the evaluations in
// AvS, which only their ids can identify.
func TestDeprovisioning_UnsavedObjects_AreRemoved(t *testing.T) {
	w := newWorld(t)
	op := w.order()
	op = w.all(provisioning, op)
	op.Details = nil
	w.all(deprovisioning, deprovision(op))
	for kind, n := range w.objects() {
		switch kind {
		case "avs/evaluation":
			if n != 2 {
				t.Errorf("%d evaluations are left, want the two whose ids were lost", n)
			}
		case "edp/dataTenant", "provisioner/runtime", "control-plane/Kyma", "gardener/Shoot":
			t.Errorf("%s: %d left", kind, n)
		}
	}
}
