package stepworkers_test

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/avs"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
	"github.com/kyma-project/keb/services/step-workers/reconciler"
)

func TestUpdate_Parameters_ReachAllSystems(t *testing.T) {
	w := newWorld(t)
	op := w.all(provisioning, w.order())
	before := w.created()
	calls := w.calls(func() { op = w.all(updating, w.update(op, "u-1")) })

	started := asked(calls, "upgradeShoot")
	if len(started) != 1 {
		t.Errorf("the cluster got %s", started)
	}
	inRuntime := slices.ContainsFunc(calls, func(c call) bool {
		return strings.HasPrefix(c.path, "/k8s/runtimes/") && strings.HasSuffix(c.path, "/secrets/sap-btp-manager") &&
			c.method == http.MethodPut && strings.Contains(string(c.body), base64.StdEncoding.EncodeToString([]byte(canary+"-new")))
	})
	atReconciler := slices.ContainsFunc(calls, func(c call) bool {
		return c.path == "/reconciler/v1/clusters" && strings.Contains(string(c.body), canary+"-new")
	})
	if !inRuntime || !atReconciler {
		t.Errorf("new credentials: in the runtime %t, at the reconciler %t", inRuntime, atReconciler)
	}
	before["provisioner/operation"]++
	equal(t, "an update creates only an operation of the provisioner", before, w.created())
	w.noSecrets()
	w.all(deprovisioning, deprovision(op))
}

func TestUpdate_SuspendedInstance_IsSkipped(t *testing.T) {
	w := newWorld(t)
	type sequence struct {
		steps []string
		op    workertest.Operation
	}
	sequences := []sequence{
		{without(updating, "Update_Init_Kyma_Version"), w.update(w.order(), "u-1")},
		{[]string{"Get_Kubeconfig", "AVS_Set_Maintenance", "Apply_Cluster_Configuration", "Check_Cluster_Configuration", "AVS_Restore_Status"}, w.upgrade(workertest.Operation{Details: map[string]any{}}, event.UpgradeKyma, "k-1")},
		{[]string{"AVS_Set_Maintenance", "Upgrade_Cluster", "Check_Runtime", "AVS_Restore_Status"}, w.upgrade(w.order(), event.UpgradeCluster, "c-1")},
	}
	calls := w.calls(func() {
		for _, test := range sequences {
			for _, name := range test.steps {
				r := w.run(name, test.op)
				if r.Outcome != skipped && name != "BTPOperatorOverrides" {
					t.Errorf("%s of %s: %s, %+v", name, test.op.Type, r.Outcome, r.Error)
				}
				test.op = r.Then()
			}
		}
	})
	if len(calls) != 0 {
		t.Errorf("%d calls, first %s %s", len(calls), calls[0].method, calls[0].path)
	}
}

// The details of an earlier operation have no meaning for the next one.
func TestUpdate_Each_StartsOwnUpgrade(t *testing.T) {
	w := newWorld(t)
	op := w.all(provisioning, w.order())
	ids := map[string]bool{saved[provisioner.Details](t, op, provisioner.Name).OperationID: true}
	for _, id := range []string{"u-1", "u-2"} {
		op = w.update(op, id)
		op.Credentials[event.CredentialsServiceManager].(map[string]any)["clientsecret"] = canary + id
		if r := w.run("Check_Runtime", op); r.Outcome != skipped {
			t.Errorf("%s: Check_Runtime before the upgrade: %s, %+v", id, r.Outcome, r.Error)
		}
		if r := w.run("CheckReconcilerState", op); r.Outcome != skipped {
			t.Errorf("%s: CheckReconcilerState before the configuration: %s, %+v", id, r.Outcome, r.Error)
		}
		op = w.all(updating, op)
		ids[saved[provisioner.Details](t, op, provisioner.Name).Upgrade.OperationID] = true
		if by := saved[reconciler.Details](t, op, reconciler.Name).AppliedBy; by != id {
			t.Errorf("%s: the configuration was applied by %s", id, by)
		}
	}
	if len(ids) != 3 || ids[""] {
		t.Errorf("operations of the provisioner: %v", ids)
	}
}

// noted runs the first execution of a step, which saves the runtime's last operation.
func (w *world) noted(name string, op workertest.Operation) workertest.Operation {
	w.t.Helper()
	r := w.run(name, op)
	if r.Outcome != retry || r.Error != nil {
		w.t.Fatalf("%s at first: %s, %+v", name, r.Outcome, r.Error)
	}
	op.Details = r.Then().Details
	return op
}

func TestUpgradeShoot_LostAnswer_IsFound(t *testing.T) {
	w := newWorld(t)
	op := w.noted("Upgrade_Shoot", w.update(w.all(provisioning, w.order()), "u-1"))
	next := w.door.next
	w.door.next = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.peek(r).graphQL() == "upgradeShoot" {
			next.ServeHTTP(discard{http.Header{}}, r)
			http.Error(rw, "lost", http.StatusBadGateway)
			return
		}
		next.ServeHTTP(rw, r)
	})
	w.expect("Upgrade_Shoot", op, retry)
	w.door.next = next
	again := w.calls(func() { op = w.all([]string{"Upgrade_Shoot", "Check_Runtime"}, op) })
	if n := len(asked(again, "upgradeShoot")); n != 0 {
		t.Errorf("%d more upgrades were requested", n)
	}
}

func TestUpgradeShoot_OtherOperation_RunsAfterIt(t *testing.T) {
	for _, field := range []string{
		`hibernateRuntime(id: $id)`, `upgradeShoot(id: $id, config: {administrators: ["a@example.com"], gardenerConfig: {autoScalerMax: 7, shootNetworkingFilterDisabled: false,
			oidcConfig: {clientID: "c", issuerURL: "https://issuer.example.com", groupsClaim: "groups", signingAlgs: ["RS256"], usernameClaim: "sub", usernamePrefix: "-"}}})`,
	} {
		t.Run(field, func(t *testing.T) {
			w := newWorld(t)
			op := w.update(w.all(provisioning, w.order()), "u-1")
			w.foreign(op, field)
			w.expect("Upgrade_Shoot", op, waiting, "must end first")
			w.advance(takes)
			calls := w.calls(func() { w.all([]string{"Upgrade_Shoot", "Check_Runtime"}, op) })
			if n := len(asked(calls, "upgradeShoot")); n != 1 {
				t.Errorf("%d upgrades were requested, want 1", n)
			}
		})
	}
}

func TestUpgradeShoot_RejectedWhileBusy_Waits(t *testing.T) {
	w := newWorld(t)
	op := w.noted("Upgrade_Shoot", w.update(w.all(provisioning, w.order()), "u-1"))
	next := w.door.next
	once := sync.OnceFunc(func() { w.foreign(op, `hibernateRuntime(id: $id)`) })
	w.door.next = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.peek(r).graphQL() == "upgradeShoot" {
			once()
		}
		next.ServeHTTP(rw, r)
	})
	w.expect("Upgrade_Shoot", op, waiting, "must end first")
	w.door.next = next
	w.advance(takes)
	w.all([]string{"Upgrade_Shoot", "Check_Runtime"}, op)
}

func TestUpgradeShoot_ParallelExecutions_StartOne(t *testing.T) {
	w := newWorld(t)
	op := w.noted("Upgrade_Shoot", w.update(w.all(provisioning, w.order()), "u-1"))
	before := w.created()["provisioner/operation"]
	op.Worker, op.Now = provisioner.Name, w.clock()
	ids := make(chan string, 8)
	var group sync.WaitGroup
	for range cap(ids) {
		group.Go(func() {
			r := workertest.Run(t, w.steps["Upgrade_Shoot"], op)
			if r.Outcome != succeeded {
				t.Errorf("%s, %+v", r.Outcome, r.Error)
			}
			ids <- saved[provisioner.Details](t, r.Then(), provisioner.Name).Upgrade.OperationID
		})
	}
	group.Wait()
	close(ids)
	got := map[string]bool{}
	for id := range ids {
		got[id] = true
	}
	if n := w.created()["provisioner/operation"] - before; n != 1 || len(got) != 1 {
		t.Errorf("%d operations were created, and %v saved", n, got)
	}
}

func TestUpgradeShoot_Failed_IsRestartedByRetry(t *testing.T) {
	w := newWorld(t)
	op := w.update(w.all(provisioning, w.order()), "u-1")
	w.admin(http.MethodPut, "/provisioner/failures", map[string]any{
		"instanceId": "*", "operation": "UpgradeShoot", "message": "no nodes", "reason": "ERR_QUOTA", "component": "gardener",
	}, nil)
	op = w.all([]string{"Upgrade_Shoot"}, op)
	r, op := w.finish("Check_Runtime", op)
	if r.Outcome != failed || r.Error.Component != "gardener" || r.Error.Reason != "ERR_QUOTA" || r.Error.Message != "no nodes" {
		t.Fatalf("%s, %+v", r.Outcome, r.Error)
	}
	w.admin(http.MethodDelete, "/provisioner/failures", nil, nil)
	before := w.created()["provisioner/operation"]
	w.killed("Check_Runtime", op)
	if n := w.created()["provisioner/operation"] - before; n != 1 {
		t.Errorf("the retry started %d upgrades, want 1", n)
	}
}

// The Runtime Provisioner moves the runtime of a moved subaccount; the hyperscaler account stays with the tenant of its claim.
func TestMovedSubaccount_CallsOfItsRuntime_NameTheNewAccount(t *testing.T) {
	w := newWorld(t)
	op := w.all(provisioning, w.order())
	w.door.requests = nil
	moved := func(op workertest.Operation) workertest.Operation {
		op.Context.GlobalAccountID, op.Context.SubscriptionGlobalAccountID = "ga-2", "ga-1"
		return op
	}
	op = w.all(updating, moved(w.update(op, "u-1")))
	op = w.all(upgradingCluster, moved(w.upgrade(op, event.UpgradeCluster, "c-1")))
	again := moved(w.later(op, event.Provision, "p-2"))
	again.Details[avs.Name] = avs.Details{InternalID: saved[avs.Details](t, op, avs.Name).InternalID}
	w.expect("AVS_Tags", again, succeeded)
	w.all([]string{"BTPOperator_Cleanup", "Remove_Runtime", "Check_Runtime_Removal", "Release_Subscription"}, moved(deprovision(op)))
	seen := 0
	for _, r := range w.door.requests {
		if r.Path == "/provisioner/graphql" {
			seen++
			if r.Header["Tenant"] != "ga-2" {
				t.Errorf("a call names the account %s: %v", r.Header["Tenant"], r.Body)
			}
		}
	}
	if seen < 8 {
		t.Errorf("%d calls were seen", seen)
	}
	w.holds("provisioner/runtime", 0)
	if dirty := w.dirty("ga-1"); dirty != 1 {
		t.Errorf("%d accounts of ga-1 were released, want 1", dirty)
	}
}

func TestUpdate_FailedCredentials_FailsOperation(t *testing.T) {
	w := newWorld(t)
	op := w.update(w.all(provisioning, w.order()), "u-1")
	w.admin(http.MethodPut, "/reconciler/failures", map[string]any{"instanceId": "*", "component": "btp-operator", "reason": "no pods"}, nil)
	op = w.all(upTo("Apply_Reconciler_Configuration", updating)[1:], op)
	r, _ := w.finish("CheckReconcilerState", op)
	if r.Outcome != failed || !strings.Contains(r.Error.Message, "btp-operator: no pods") {
		t.Errorf("%s, %+v", r.Outcome, r.Error)
	}
}
