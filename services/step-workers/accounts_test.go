package stepworkers_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker/workertest"
	stepworkers "github.com/kyma-project/keb/services/step-workers"
	"github.com/kyma-project/keb/services/step-workers/hyperscaler"
	"github.com/kyma-project/keb/services/step-workers/kyma"
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

func TestResolve_SameTenant_ReusesItsAccount(t *testing.T) {
	w := newWorld(t)
	first := w.account(w.order())
	if again := w.account(w.order()); again != first {
		t.Errorf("the same tenant got %s and %s", first, again)
	}
	op := w.order()
	op.Context.GlobalAccountID = "ga-2"
	if other := w.account(op); other == first {
		t.Errorf("two tenants share %s", other)
	}
}

func TestResolve_Order_SelectsMatchingAccount(t *testing.T) {
	w := newWorld(t)
	for want, change := range map[string]func(*workertest.Operation){
		"sb-azure-eu-":     func(op *workertest.Operation) { op.Context.PlatformRegion = "cf-ch20" },
		"sb-azure-shared-": func(op *workertest.Operation) { op.Plan.Name = "trial" },
		"sb-gcp-pool-":     func(op *workertest.Operation) { op.Runtime.Provider = "gcp" },
		"given":            func(op *workertest.Operation) { op.Parameters = map[string]any{"targetSecret": "given"} },
	} {
		op := w.order()
		change(&op)
		if got := w.account(op); !strings.HasPrefix(got, want) {
			t.Errorf("got %s, want %s...", got, want)
		}
	}
}

func TestResolve_EmptyPool_IsRetried(t *testing.T) {
	w := newWorld(t)
	for _, tenant := range []string{"a", "b", "c", "d", "e"} {
		op := w.order()
		op.Context.GlobalAccountID = tenant
		w.account(op)
	}
	op := w.order()
	op.Context.GlobalAccountID = "f"
	if r := w.run(resolve, op); r.Outcome != retry || r.Error == nil || !strings.Contains(r.Error.Message, "no free account") {
		t.Errorf("%s, %+v", r.Outcome, r.Error)
	}
}

func TestResolve_InvalidTenantLabel_Fails(t *testing.T) {
	w := newWorld(t)
	op := w.order()
	op.Context.GlobalAccountID = "ga-1,tenantName!=x"
	if r := w.run(resolve, op); r.Outcome != failed || !strings.Contains(r.Error.Message, "context.globalAccountId") {
		t.Errorf("%s, %+v", r.Outcome, r.Error)
	}
}

// Two processes do not share a lock.
func TestResolve_TwoProcesses_ClaimOneAccount(t *testing.T) {
	w := newWorld(t)
	first := w.steps[resolve]
	w.build(w.url)
	second := w.steps[resolve]
	var group sync.WaitGroup
	secrets := make(chan string, 20)
	for i := range 10 {
		step := first
		if i%2 == 1 {
			step = second
		}
		op := w.order()
		op.Worker, op.Now = hyperscaler.Name, w.clock()
		group.Go(func() {
			for range 20 {
				r := workertest.Run(t, step, op)
				if r.Outcome != retry {
					secrets <- saved[hyperscaler.Details](t, r.Then(), hyperscaler.Name).TargetSecret
					return
				}
			}
			t.Error("never ends")
		})
	}
	group.Wait()
	close(secrets)
	got := map[string]int{}
	for s := range secrets {
		got[s]++
	}
	if len(got) != 1 {
		t.Errorf("accounts %v, want one", got)
	}
}

func TestRelease_LastCluster_MarksAccountDirty(t *testing.T) {
	w := newWorld(t)
	other := w.order()
	other.InstanceID, other.Runtime.ShootName = "22222222-2222-4222-8222-222222222222", "c-other"
	for _, name := range []string{resolve, "Create_Runtime_Without_Kyma"} {
		_, other = w.finish(name, other)
	}
	account := saved[hyperscaler.Details](t, other, hyperscaler.Name).TargetSecret
	const release = "Release_Subscription"
	w.all([]string{release}, deprovision(w.order()))
	if again := w.account(w.order()); again != account {
		t.Errorf("account %s in use was released: the tenant got %s", account, again)
	}
	w.all([]string{release}, deprovision(w.order()))
	w.advance(takes)
	w.all([]string{"Remove_Runtime", "Check_Runtime_Removal", release}, deprovision(other))
	if again := w.account(w.order()); again == account {
		t.Errorf("the released account %s was given out again before it was cleaned", account)
	}
}

func TestKymaVersion_AccountMapping_TakesPrecedence(t *testing.T) {
	w := newWorld(t)
	for subaccount, want := range map[string]string{"SA-1": "2.20.0", "kyma-next": "2.21.0"} {
		op := w.order()
		op.Context.SubaccountID = subaccount
		op = w.all([]string{"Provision_Initialization", "Overrides_From_Secrets_And_Config_Step"}, op)
		if got := saved[kyma.Details](t, op, kyma.Name); got.Version != want {
			t.Errorf("%s: %+v, want %s", subaccount, got, want)
		}
	}
}

func TestMaintenanceWindows_Shoots_AreReturned(t *testing.T) {
	w := newWorld(t)
	op := w.order()
	w.all([]string{resolve, "Create_Runtime_Without_Kyma"}, op)
	services, err := stepworkers.All(w.url, stepworkers.Options{})
	require.NoError(t, err)
	for _, s := range services {
		if s.Name != hyperscaler.Name || len(s.Questions) != 1 || s.Questions[0].Subject != event.AskMaintenanceWindows {
			continue
		}
		answer, err := s.Questions[0].Answer(t.Context(), []byte(`{"shootNames":["`+op.Runtime.ShootName+`"]}`))
		windows, _ := answer.(event.MaintenanceWindowsAnswer)
		if err != nil || len(windows.Windows) != 1 || windows.Windows[0].ShootName != op.Runtime.ShootName {
			t.Errorf("%+v, %v", answer, err)
		}
		return
	}
	t.Error("no worker has the question for maintenance windows")
}
