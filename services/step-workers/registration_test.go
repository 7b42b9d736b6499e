package stepworkers_test

import (
	"net/http"
	"testing"

	"github.com/kyma-project/keb/services/step-workers/edp"
)

func TestStaleRegistrationIsReplaced(t *testing.T) {
	w := newWorld(t)
	stale := w.order()
	stale.Plan.Name = "free"
	w.all([]string{"EDP_Registration"}, stale)
	op := w.order()
	r := w.run("EDP_Registration", op)
	if r.Outcome != retry || r.Error != nil {
		t.Fatalf("at first: %s, %+v", r.Outcome, r.Error)
	}
	if n := w.objects()["edp/dataTenant"]; n != 0 {
		t.Errorf("%d tenants after the clean-up, want 0: it must use the name that the creation uses", n)
	}
	op = w.all([]string{"EDP_Registration"}, op)
	if d := saved[edp.Details](t, op, edp.Name); !d.Registered || d.Tenant != "sa-1" {
		t.Errorf("saved %+v", d)
	}
	if n := w.objects()["edp/metadata"]; n != 4 {
		t.Errorf("%d entries, want 4", n)
	}
}

func TestHalfARegistrationIsCompleted(t *testing.T) {
	w := newWorld(t)
	w.door.fault.Store(&fault{prefix: "/edp/namespaces/kyma/dataTenants/sa-1", status: http.StatusServiceUnavailable})
	if r := w.run("EDP_Registration", w.order()); r.Outcome != retry {
		t.Fatalf("without metadata: %s", r.Outcome)
	}
	w.door.fault.Store(nil)
	w.all([]string{"EDP_Registration"}, w.order())
	if made := w.created(); made["edp/dataTenant"] != 1 || made["edp/metadata"] != 4 {
		t.Errorf("made %v", made)
	}
}

func TestInstancesOfOneSubaccountDoNotFight(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"} {
		op := w.order()
		op.InstanceID = id
		if r := w.run("EDP_Registration", op); r.Outcome != succeeded {
			t.Errorf("instance %s: %s, %+v", id, r.Outcome, r.Error)
		}
	}
	if n := w.created()["edp/dataTenant"]; n != 1 {
		t.Errorf("%d tenants were made, want 1", n)
	}
}
