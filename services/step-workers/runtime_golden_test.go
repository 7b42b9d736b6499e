package stepworkers_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// runtimeIDs matches the ids of runtimes in paths.
var runtimeIDs = regexp.MustCompile(`/k8s/runtimes/[^/]+/`)

// goldenRuntime compares the requests to the runtime that are sent while f runs.
func (w *world) goldenRuntime(name string, f func()) {
	w.t.Helper()
	w.rewritten = func(text string) string {
		return assigned.ReplaceAllString(runtimeIDs.ReplaceAllString(text, "/k8s/runtimes/RUNTIME/"), `"$1": "ASSIGNED"`)
	}
	w.goldenOf("runtimes_"+name, "/k8s/runtimes", f)
}

func TestRuntimeCredentials_RequestsAreGolden(t *testing.T) {
	w := newWorld(t)
	op := w.reached()
	kubeconfig := w.runtimeKubeconfig(op)
	w.goldenRuntime("azure_provision", func() { op = w.all([]string{inject}, op) })
	update := w.update(op, "u-1")
	update.Remembered = memoryWith(kubeconfig)
	w.goldenRuntime("azure_update", func() { w.all([]string{inject}, update) })
	w.putBTPSecret(op, map[string]any{"app.kubernetes.io/managed-by": "helm"}, map[string]any{"immutable": true})
	w.goldenRuntime("azure_update_immutable", func() { w.all([]string{inject}, update) })
	// Neither the details nor the runtime contain a cluster id.
	upgrade := w.upgrade(op, event.UpgradeKyma, "k-1")
	upgrade.Remembered = memoryWith(kubeconfig)
	delete(upgrade.Details, "btp")
	w.goldenRuntime("azure_upgradeKyma", func() { w.all([]string{"BTPOperatorOverrides"}, upgrade) })
}

func TestRuntimeCleanup_RequestsAreGolden(t *testing.T) {
	for name, change := range map[string]func(*workertest.Operation){
		"azure_deprovision":            func(*workertest.Operation) {},
		"trial_suspension":             func(op *workertest.Operation) { op.Plan.Name, op.Temporary = "trial", true },
		"azure_deprovision_finalizers": func(op *workertest.Operation) { op.FirstTried = 30 * time.Minute },
		"azure_deprovision_account":    func(op *workertest.Operation) { op.UserAgent = "accountcleanup-job" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			op := deprovision(w.reached())
			change(&op)
			w.customerHas(op, "db", "services.cloud.sap.com/sap-btp-finalizer")
			w.goldenRuntime(name, func() {
				r := w.run(btpCleanup, op)
				if op.FirstTried > 0 { // it counted the remaining objects
					next := r.Then()
					next.FirstTried = op.FirstTried
					w.run(btpCleanup, next)
				}
			})
		})
	}
}

func TestRuntimeCleanup_OwnCluster_RequestsAreGolden(t *testing.T) {
	w := newWorld(t)
	op := w.all([]string{inject}, w.reached())
	own := w.ownCluster(op)
	w.goldenRuntime("own_cluster_deprovision", func() { w.all([]string{btpCleanup}, own) })
}

func TestRuntimeAccess_RequestsAreGolden(t *testing.T) {
	w := newWorld(t)
	op := w.reached()
	at := event.RuntimeAccess{
		InstanceID: op.InstanceID, Account: op.Context.GlobalAccountID,
		RuntimeID: saved[provisioner.Details](t, op, provisioner.Name).RuntimeID,
	}
	a := newAsker(w)
	w.goldenRuntime("azure_bind", func() {
		if _, err := a.bind(at, "b-1", 600); err != nil {
			t.Error(err)
		}
	})
	w.goldenRuntime("azure_unbind", func() {
		if err := a.unbind(at, "b-1"); err != nil {
			t.Error(err)
		}
	})
}
