package stepworkers_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// saved returns the saved details of a worker.
func saved[D any](t testing.TB, op workertest.Operation, worker string) D {
	t.Helper()
	var d D
	data, err := json.Marshal(op.Details[worker])
	if err == nil {
		err = json.Unmarshal(data, &d)
	}
	require.NoError(t, err)
	return d
}

func TestRemoval_Failed_IsRestartedNextTime(t *testing.T) {
	w := newWorld(t)
	op := deprovision(w.all(provisioning, w.order()))
	w.admin(http.MethodPut, "/provisioner/failures", map[string]any{
		"instanceId": "*", "message": "quota", "reason": "ERR_QUOTA", "component": "gardener",
	}, nil)
	_, op = w.finish("Remove_Runtime", op)
	r, op := w.finish("Check_Runtime_Removal", op)
	if r.Outcome != failed || r.Error.Component != "gardener" || r.Error.Reason != "ERR_QUOTA" || r.Error.Message != "quota" {
		t.Fatalf("the removal fails: %s, %+v", r.Outcome, r.Error)
	}
	d := saved[provisioner.Details](t, op, provisioner.Name)
	if d.RemovalOperationID != "" || d.RuntimeID == "" {
		t.Fatalf("after the failure: %+v", d)
	}
	w.admin(http.MethodDelete, "/provisioner/failures", nil, nil)
	// Remove_Runtime succeeded before: the repeated deprovisioning continues with the check.
	r, op = w.finish("Check_Runtime_Removal", op)
	if r.Outcome != succeeded || w.objects()["provisioner/runtime"] != 0 {
		t.Fatalf("the removal is repeated: %s, %+v; %v", r.Outcome, r.Error, w.objects())
	}
	if d := saved[provisioner.Details](t, op, provisioner.Name); d != (provisioner.Details{}) {
		t.Errorf("still saved: %+v", d)
	}
}

func TestRemoval_MissingRuntime_Succeeds(t *testing.T) {
	w := newWorld(t)
	op := w.order()
	op.Details = map[string]any{"provisioner": map[string]any{"runtimeId": "5b7e1d0c-0000-4b8e-8a46-1c9d2e7f6a20"}}
	op = deprovision(op)
	for name, want := range map[string]string{"BTPOperator_Cleanup": "skipped", "Remove_Runtime": "skipped", "Check_Runtime_Removal": "succeeded"} {
		if r := w.run(name, op); string(r.Outcome) != want {
			t.Errorf("%s: %s, want %s (%+v)", name, r.Outcome, want, r.Error)
		}
	}
}

func TestRemoval_UnfinishedCreation_Waits(t *testing.T) {
	w := newWorld(t)
	op := w.order()
	for _, name := range []string{"Resolve_Target_Secret", "Create_Runtime_Without_Kyma"} {
		_, op = w.finish(name, op)
	}
	op = deprovision(op)
	w.expect("Remove_Runtime", op, waiting, "must end first")
	w.all([]string{"Remove_Runtime", "Check_Runtime_Removal"}, op)
	w.holds("provisioner/runtime", 0)
}

// The Runtime Provisioner refuses with a code that is permanent for other steps: the cluster must not stay because of it.
func TestProvisioner_RefusedMutation_IsRepeated(t *testing.T) {
	for step, mutation := range map[string]string{
		"Remove_Runtime": "deprovisionRuntime", "Check_Runtime_Removal": "deprovisionRuntime", "Upgrade_Shoot": "upgradeShoot",
	} {
		t.Run(step, func(t *testing.T) {
			w := newWorld(t)
			op := w.all(provisioning, w.order())
			if step == "Upgrade_Shoot" {
				op = w.noted(step, w.update(op, "u-1"))
			} else {
				op = deprovision(op)
			}
			next, refused := w.door.next, false
			w.door.next = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if !refused && w.peek(r).graphQL() == mutation {
					refused = true
					rw.Header().Set("Content-Type", "application/json")
					_, _ = rw.Write([]byte(`{"data":null,"errors":[{"message":"no","extensions":{"error_code":400,"error_reason":"err_provisioner_internal"}}]}`))
					return
				}
				next.ServeHTTP(rw, r)
			})
			w.expect(step, op, retry, "no")
			w.all([]string{step}, op)
			if !refused {
				t.Error("nothing was refused")
			}
		})
	}
}

func TestCheckRuntime_FailedCreation_ReportsReason(t *testing.T) {
	w := newWorld(t)
	w.admin(http.MethodPut, "/provisioner/failures", map[string]any{
		"instanceId": "*", "message": "no quota for token=abc", "reason": "ERR_QUOTA", "component": "gardener",
	}, nil)
	op := w.order()
	for _, name := range []string{"Resolve_Target_Secret", "Create_Runtime_Without_Kyma"} {
		_, op = w.finish(name, op)
	}
	r, _ := w.finish("Check_Runtime", op)
	if r.Outcome != failed || r.Error.Reason != "ERR_QUOTA" || r.Error.Message != "no quota for token=[redacted]" {
		t.Errorf("%s, %+v", r.Outcome, r.Error)
	}
}

func TestOrder_RuntimeFailedOrDeletedByHand_IsReplaced(t *testing.T) {
	w := newWorld(t)
	op := w.all([]string{"Resolve_Target_Secret", "Create_Runtime_Without_Kyma"}, w.order())
	first := saved[provisioner.Details](t, op, provisioner.Name).RuntimeID
	w.all([]string{"Check_Runtime", "Remove_Runtime", "Check_Runtime_Removal"}, deprovision(op))
	w.admin(http.MethodPut, "/provisioner/failures", map[string]any{
		"instanceId": "*", "message": "quota", "reason": "ERR_QUOTA", "component": "gardener",
	}, nil)
	op = w.all([]string{"Create_Runtime_Without_Kyma"}, op)
	second := saved[provisioner.Details](t, op, provisioner.Name).RuntimeID
	_, op = w.finish("Check_Runtime", op)
	w.admin(http.MethodDelete, "/provisioner/failures", nil, nil)
	op = w.all([]string{"Create_Runtime_Without_Kyma", "Check_Runtime"}, op)
	third := saved[provisioner.Details](t, op, provisioner.Name).RuntimeID
	if first == second || second == third {
		t.Errorf("the runtime was %s, then %s, then %s: want three runtimes", first, second, third)
	}
	w.holds("provisioner/runtime", 1)
}

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
	equal(t, "objects are left", before, after)
	w.noSecrets()
}

// A deprovisioning names what it removes. A second one names only what a late request has created meanwhile.
func TestDeprovisioning_Removed_IsNamed(t *testing.T) {
	w := newWorld(t)
	provisioned := w.all(provisioning, w.order())
	removed := func(op workertest.Operation) (names []string, after workertest.Operation) {
		for _, name := range deprovisioning {
			for tries := 0; ; tries++ {
				r := w.run(name, op)
				names, op = append(names, r.Removed...), r.Then()
				if r.Outcome == succeeded || r.Outcome == skipped {
					break
				}
				require.True(t, r.Outcome == event.OutcomeRetry && tries < 10, "%s: %s, %+v", name, r.Outcome, r.Error)
				w.advance(takes)
			}
		}
		return names, op
	}
	runtime := saved[provisioner.Details](t, provisioned, provisioner.Name).RuntimeID
	first, op := removed(deprovision(provisioned))
	want := []string{
		"evaluation 1", "evaluation 2", "data tenant sa-1", "Kyma resource " + runtime, "cluster " + runtime, "runtime " + runtime,
		"Secret kubeconfig-" + runtime,
	}
	require.Len(t, first, len(want), "%q", first)
	for i := range want {
		require.Contains(t, first[i], want[i])
	}
	second, op := removed(deprovision(op))
	require.Empty(t, second, "nothing was left")
	w.all([]string{"Apply_Kyma"}, provisioned) // a request of the provisioning that takes effect late
	third, _ := removed(deprovision(op))
	require.Equal(t, []string{"Kyma resource " + runtime}, third)
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
