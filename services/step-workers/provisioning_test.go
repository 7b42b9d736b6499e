package stepworkers_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
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

// again lists the objects that a second attempt creates again. AvS has no look-up, so the object of the first attempt remains as an orphan.
// A registration in EDP is replaced, so nothing remains.
var again = map[string]map[string]int64{
	"AVS_Create_Internal_Eval_Step": {"avs/evaluation": 1},
	"AVS_Create_External_Eval_Step": {"avs/evaluation": 1},
	"EDP_Registration":              {"edp/dataTenant": 1, "edp/metadata": 4},
}

// Each step is killed once between its call and its result, then runs to its end, then runs again.
func TestSteps_KillAnywhere_CreatesObjectsOnce(t *testing.T) {
	w := newWorld(t)
	op := w.order()
	for _, name := range provisioning {
		w.run(name, op)
		once := w.created()
		r, next := w.finish(name, op)
		if r.Outcome != event.OutcomeSucceeded {
			t.Fatalf("%s after a kill: %s, %+v", name, r.Outcome, r.Error)
		}
		for kind, n := range again[name] {
			once[kind] += n
		}
		if name != "Check_Runtime" {
			if diff := cmp.Diff(once, w.created()); diff != "" {
				t.Errorf("%s after a kill created objects again:\n%s", name, diff)
			}
		}
		twice := w.created()
		if r := w.run(name, next); r.Outcome != event.OutcomeSucceeded {
			t.Errorf("%s again: %s, %+v", name, r.Outcome, r.Error)
		}
		if diff := cmp.Diff(twice, w.created()); diff != "" {
			t.Errorf("%s created objects again:\n%s", name, diff)
		}
		op = next
	}
	op = deprovision(op)
	for _, name := range deprovisioning {
		w.run(name, op)
		r, next := w.finish(name, op)
		if r.Outcome != event.OutcomeSucceeded && r.Outcome != event.OutcomeSkipped {
			t.Fatalf("%s after a kill: %s, %+v", name, r.Outcome, r.Error)
		}
		if r := w.run(name, next); r.Outcome != event.OutcomeSucceeded && r.Outcome != event.OutcomeSkipped {
			t.Errorf("%s again: %s, %+v", name, r.Outcome, r.Error)
		}
		op = next
	}
	for kind, n := range w.objects() {
		switch kind {
		case "avs/evaluation":
			if n != 2 {
				t.Errorf("%d evaluations are left, want one orphan for each of the two kills", n)
			}
		case "edp/dataTenant", "provisioner/runtime", "reconciler/cluster", "control-plane/Kyma", "gardener/Shoot":
			t.Errorf("%s: %d left", kind, n)
		}
	}
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
