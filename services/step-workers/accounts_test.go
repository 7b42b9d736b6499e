package stepworkers_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/hyperscaler"
)

const resolve = "Resolve_Target_Secret"

func (w *world) account(op workertest.Operation) string {
	w.t.Helper()
	r, op := w.finish(resolve, op)
	if r.Outcome != succeeded {
		w.t.Fatalf("%s: %s, %+v", resolve, r.Outcome, r.Error)
	}
	return saved[hyperscaler.Details](w.t, op, hyperscaler.Name).TargetSecret
}

func TestResolve_Order_SelectsMatchingAccount(t *testing.T) {
	w := newWorld(t)
	for want, change := range map[string]func(*workertest.Operation){
		"sb-azure-eu-":     func(op *workertest.Operation) { op.Context.PlatformRegion = "cf-ch20" },
		"sb-azure-shared-": func(op *workertest.Operation) { op.Plan.Name = "trial" },
		"sb-gcp-pool-":     func(op *workertest.Operation) { op.Runtime.Provider = "gcp" },
		// Only the worker selects the account: a parameter could name the account of another tenant.
		"sb-azure-pool-": func(op *workertest.Operation) { op.Parameters = map[string]any{"targetSecret": "another"} },
	} {
		op := w.order()
		change(&op)
		if got := w.account(op); !strings.HasPrefix(got, want) {
			t.Errorf("got %s, want %s...", got, want)
		}
	}
}

func TestResolve_InvalidTenantLabel_Fails(t *testing.T) {
	w := newWorld(t)
	op := w.order()
	op.Context.GlobalAccountID = "ga-1,tenantName!=x"
	w.expect(resolve, op, failed, "context.globalAccountId")
}

const releaseSubscription = "Release_Subscription"

var (
	// bindingNames matches the names of secret bindings in paths. The choice of a binding is random.
	bindingNames = regexp.MustCompile(`sb-[a-z]+-(pool|eu|shared)-[0-9]+`)
	// claimTimes matches the times of claims.
	claimTimes = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"`)
	// assigned are members of Kubernetes objects whose values the API server assigns.
	assigned = regexp.MustCompile(`"(creationTimestamp|resourceVersion|uid)": "[^"]*"`)
)

// goldenAccounts compares the requests to Gardener that are sent while f runs.
func (w *world) goldenAccounts(name string, f func()) {
	w.t.Helper()
	w.hidden = claimTimes
	w.rewritten = func(text string) string {
		return assigned.ReplaceAllString(bindingNames.ReplaceAllString(text, "BINDING-$1"), `"$1": "ASSIGNED"`)
	}
	w.goldenOf("gardener_"+name, "/k8s/gardener", f)
}

func TestAccounts_EachPlan_RequestsAreGolden(t *testing.T) {
	for _, p := range planRows {
		t.Run(p.String(), func(t *testing.T) {
			w := newWorld(t)
			op := w.orderOf(p)
			w.goldenAccounts(p.String()+"_provision", func() { op = w.all([]string{resolve}, op) })
			if p.plan == "trial" { // shared accounts are never released
				if calls := w.calls(func() { w.all([]string{releaseSubscription}, deprovision(op)) }); len(calls) > 0 {
					t.Errorf("the deprovisioning of a trial sends %d requests", len(calls))
				}
				return
			}
			// After a move of the subaccount, the account of the tenant that ordered is released.
			moved := deprovision(op)
			moved.Context.GlobalAccountID, moved.Context.SubscriptionGlobalAccountID = "ga-2", op.Context.GlobalAccountID
			w.goldenAccounts(p.String()+"_deprovision", func() { w.all([]string{releaseSubscription}, moved) })
		})
	}
}

func TestAccounts_OtherOrders_RequestsAreGolden(t *testing.T) {
	w := newWorld(t)
	eu := w.order()
	eu.Context.PlatformRegion = "cf-eu11"
	w.goldenAccounts("azure_provision_eu", func() { w.account(eu) })
	w.account(w.order())
	second := w.order()
	second.InstanceID, second.Runtime.ShootName = "22222222-2222-4222-8222-222222222222", "c-second"
	w.goldenAccounts("azure_provision_again", func() { w.account(second) })
	_, used := w.finish("Create_Runtime_Without_Kyma", w.all([]string{resolve}, second))
	w.goldenAccounts("azure_deprovision_used", func() { w.all([]string{releaseSubscription}, deprovision(w.order())) })
	w.goldenAccounts("azure_maintenance", func() {
		if _, err := w.questions[event.AskMaintenanceWindows](t.Context(), []byte(`{"shootNames":["`+used.Runtime.ShootName+`"]}`)); err != nil {
			t.Error(err)
		}
	})
}
