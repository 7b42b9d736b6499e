package stepworkers_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
	if r := w.run("Remove_Runtime", op); r.Outcome != retry || r.Error != nil || !strings.Contains(r.Message, "must end first") {
		t.Fatalf("during its creation: %s, %q, %+v", r.Outcome, r.Message, r.Error)
	}
	w.all([]string{"Remove_Runtime", "Check_Runtime_Removal"}, op)
	if n := w.objects()["provisioner/runtime"]; n != 0 {
		t.Errorf("%d runtimes are left", n)
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
