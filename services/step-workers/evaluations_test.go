package stepworkers_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/kyma-project/keb/services/step-workers/avs"
)

func TestExternalEvaluationIsRemovedEvenWhenTheInternalOneIsNot(t *testing.T) {
	w := newWorld(t)
	op := deprovision(w.all(provisioning, w.order()))
	d := saved[avs.Details](t, op, avs.Name)
	if d.InternalID == 0 || d.ExternalID == 0 || d.InternalID == d.ExternalID {
		t.Fatalf("saved: %+v", d)
	}
	const name = "De-provision_AVS_Evaluations"
	for status, want := range map[int]string{http.StatusServiceUnavailable: "retry", http.StatusForbidden: "failed"} {
		w.door.fault.Store(&fault{prefix: "/avs/api/v2/evaluationmetadata/" + strconv.FormatInt(d.InternalID, 10), status: status})
		r := w.run(name, op)
		w.door.fault.Store(nil)
		if string(r.Outcome) != want {
			t.Errorf("status %d: %s, want %s", status, r.Outcome, want)
		}
		op.Details = r.Then().Details
		if left := saved[avs.Details](t, op, avs.Name); left.ExternalID != 0 || left.FormerExternalID != 0 || left.InternalID != 0 || left.FormerInternalID != d.InternalID {
			t.Errorf("status %d: saved %+v", status, left)
		}
		if n := w.objects()["avs/evaluation"]; n != 1 {
			t.Errorf("status %d: %d evaluations, want the internal one", status, n)
		}
	}
	w.all([]string{name}, op)
	if n := w.objects()["avs/evaluation"]; n != 0 {
		t.Errorf("%d evaluations are left", n)
	}
}

func TestTrialIsNotWatchedFromOutside(t *testing.T) {
	w := newWorld(t)
	op := w.order()
	op.Plan.Name = "trial"
	for _, name := range []string{"AVS_Create_Internal_Eval_Step", "AVS_Create_External_Eval_Step"} {
		_, op = w.finish(name, op)
	}
	if n := w.objects()["avs/evaluation"]; n != 1 {
		t.Errorf("%d evaluations, want 1", n)
	}
	w.all([]string{"De-provision_AVS_Evaluations"}, deprovision(op))
	if n := w.objects()["avs/evaluation"]; n != 0 {
		t.Errorf("%d evaluations are left", n)
	}
}

func TestEvaluationsSayWhatTheyWatch(t *testing.T) {
	w := newWorld(t)
	w.all(provisioning, w.order())
	var list struct {
		Data []map[string]any `json:"data"`
	}
	w.admin(http.MethodGet, "/avs/objects", nil, &list)
	urls, tags := map[any]any{}, 0
	for _, body := range list.Data {
		urls[body["check_type"]] = body["url"]
		if t, ok := body["tags"].([]any); ok {
			tags += len(t)
		}
	}
	if urls["HTTPSGET"] != "https://healthz.c-1a2b3c4.kyma.example.com/healthz/ready" || urls[""] != "" {
		t.Errorf("addresses %v in %+v", urls, list)
	}
	if tags < 2 {
		t.Errorf("%d tags, want at least shoot and region", tags)
	}
}
