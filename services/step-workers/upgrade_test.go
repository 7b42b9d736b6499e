package stepworkers_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/reconciler"
)

func TestUpgradeKyma_Orchestration_SetsVersion(t *testing.T) {
	w := newWorld(t)
	w.seedOverrides("2.21.0")
	op := w.all(provisioning, w.order())
	old := saved[reconciler.Details](t, op, reconciler.Name)
	calls := w.calls(func() { op = w.all(upgradingKyma, w.upgrade(op, event.UpgradeKyma, "k-1")) })
	d := saved[reconciler.Details](t, op, reconciler.Name)
	if d.ConfigurationVersion <= old.ConfigurationVersion || d.AppliedBy != "k-1" || d.KymaVersion != "2.21.0" || old.KymaVersion != "2.20.0" {
		t.Errorf("before %+v, after %+v", old, d)
	}
	applied := 0
	for _, c := range calls {
		if c.path != "/reconciler/v1/clusters" {
			continue
		}
		applied++
		for _, want := range []string{`"version":"2.21.0"`, canary + "-secret", "global.domainName"} {
			if !strings.Contains(string(c.body), want) {
				t.Errorf("the reconciler did not get %s", want)
			}
		}
	}
	if applied != 1 {
		t.Errorf("the configuration was applied %d times", applied)
	}
	w.noSecrets()
}

func TestUpgradeKyma_OtherConfiguration_IsNotChecked(t *testing.T) {
	w := newWorld(t)
	op := w.upgrade(w.all(provisioning, w.order()), event.UpgradeKyma, "k-1")
	calls := w.calls(func() {
		op.FirstTried = 3 * time.Hour
		w.expect("Check_Cluster_Configuration", op, skipped, "applied no configuration")
	})
	if len(calls) != 0 {
		t.Errorf("%d calls", len(calls))
	}
	op.FirstTried = 0
	op = w.all([]string{"Get_Kubeconfig", "BTPOperatorOverrides", "Apply_Cluster_Configuration"}, op)
	if r := w.run("Check_Cluster_Configuration", op); r.Outcome != retry || !strings.Contains(r.Message, "Kyma is being upgraded") {
		t.Errorf("just applied: %s, %q, %+v", r.Outcome, r.Message, r.Error)
	}
}

func TestUpgradeKyma_Timeout_KeepsClusterRegistered(t *testing.T) {
	w := newWorld(t)
	op := w.upgrade(w.all(provisioning, w.order()), event.UpgradeKyma, "k-1")
	op = w.all([]string{"Get_Kubeconfig", "BTPOperatorOverrides", "Apply_Cluster_Configuration"}, op)
	op.FirstTried = 2 * time.Hour
	w.expect("Check_Cluster_Configuration", op, failed, "err_keb_timeout")
	w.advance(takes)
	w.holds("reconciler/cluster", 1)
}

func TestUpgrade_DryRun_OnlyReportsRequests(t *testing.T) {
	w := newWorld(t)
	w.seedOverrides("2.21.0")
	provisioned := w.all(provisioning, w.order())
	for _, test := range []struct {
		kind    event.OperationType
		steps   []string
		message []string
		forbid  []string
	}{
		{
			event.UpgradeKyma,
			upTo("Apply_Cluster_Configuration", without(without(upgradingKyma, "Send_Notification"), "AVS_Set_Maintenance")),
			[]string{"dry run", "Kyma 2.21.0", "profile Production", "btp-operator ("},
			[]string{"/reconciler"},
		},
		{
			event.UpgradeCluster,
			[]string{"Upgrade_Cluster"},
			[]string{"dry run", `"kubernetesVersion":"1.34.1"`},
			[]string{"/"},
		},
	} {
		op := w.upgrade(provisioned, test.kind, "d-1")
		op.Upgrade.DryRun = true
		var r workertest.Result
		calls := w.calls(func() {
			for _, name := range test.steps {
				r, op = w.finish(name, op)
			}
		})
		if r.Outcome != skipped || len(r.Details) != 0 {
			t.Errorf("%s: %s, %+v, saved %v", test.kind, r.Outcome, r.Error, r.Details)
		}
		for _, want := range test.message {
			if !strings.Contains(r.Message, want) {
				t.Errorf("%s: %q does not contain %s", test.kind, r.Message, want)
			}
		}
		for _, c := range calls {
			for _, prefix := range test.forbid {
				if strings.HasPrefix(c.path, prefix) {
					t.Errorf("%s: a dry run calls %s %s", test.kind, c.method, c.path)
				}
			}
		}
	}
	w.noSecrets()
}

// A runtime of another installation keeps its id in the Service Manager.
func TestUpgradeKyma_ExistingClusterID_IsKept(t *testing.T) {
	w := newWorld(t)
	op := w.all(provisioning, w.order())
	w.inRuntime(op, "cluster-info", map[string]any{"id": "their-own"})
	op = w.upgrade(op, event.UpgradeKyma, "k-1")
	delete(op.Details, "btp")
	op = w.all([]string{"Get_Kubeconfig", "BTPOperatorOverrides"}, op)
	if id := saved[map[string]any](t, op, "btp")["smClusterId"]; id != "their-own" {
		t.Errorf("cluster id %v", id)
	}
}

func TestConfiguration_FormerRuntime_IsDeregistered(t *testing.T) {
	w := newWorld(t)
	op := w.all(provisioning, w.order())
	d := saved[reconciler.Details](t, op, reconciler.Name)
	// The instance was suspended without the deregistration.
	op = w.all([]string{"Remove_Runtime", "Check_Runtime_Removal"}, deprovision(op))
	op = w.all(provisioning, w.later(op, event.Provision, "p-2"))
	w.advance(takes)
	now := saved[reconciler.Details](t, op, reconciler.Name)
	if now.RuntimeID == d.RuntimeID || w.objects()["reconciler/cluster"] != 1 {
		t.Errorf("before %+v, after %+v, clusters %d", d, now, w.objects()["reconciler/cluster"])
	}
}

func TestUpgrade_Failed_EndsMaintenance(t *testing.T) {
	w := newWorld(t)
	op := w.all(provisioning, w.order())
	w.admin(http.MethodPut, "/provisioner/failures", map[string]any{"instanceId": "*", "operation": "UpgradeShoot"}, nil)
	op = w.all(upgradingCluster[:3], w.upgrade(op, event.UpgradeCluster, "c-1"))
	if got := w.statuses(); got != "MAINTENANCE MAINTENANCE" {
		t.Errorf("during the upgrade: %s", got)
	}
	r, op := w.finish("Check_Runtime", op)
	if r.Outcome != failed {
		t.Fatalf("Check_Runtime: %s, %+v", r.Outcome, r.Error)
	}
	w.all(upgradingCluster[4:], op)
	if got := w.statuses(); got != "ACTIVE ACTIVE" {
		t.Errorf("after the failure: %s", got)
	}
	if got := w.states("o-1"); !strings.HasPrefix(got, "0: ") || !strings.HasSuffix(got, "=2") {
		t.Errorf("after the failure: %s", got)
	}
}
