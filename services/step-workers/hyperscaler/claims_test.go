package hyperscaler_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

const processes = 4

// claimAll runs claims for all tenants in parallel. It returns the accounts by tenant, and the errors of the others.
func (g *garden) claimAll(tenants []string) (accounts map[string]map[string]bool, refused []string) {
	g.t.Helper()
	var all []*process
	for range processes {
		all = append(all, g.process(nil))
	}
	accounts = map[string]map[string]bool{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for i, tenant := range tenants {
		group.Go(func() {
			r := all[i%processes].run(resolve, order(i, tenant))
			mu.Lock()
			defer mu.Unlock()
			if r.Outcome != event.OutcomeSucceeded {
				refused = append(refused, fmt.Sprintf("%s, %+v", r.Outcome, r.Error))
				return
			}
			if accounts[tenant] == nil {
				accounts[tenant] = map[string]bool{}
			}
			accounts[tenant][secretOf(r)] = true
		})
	}
	group.Wait()
	return accounts, refused
}

func tenants(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("ga-%d", i)
	}
	return names
}

// checkOwners fails the test unless each tenant has exactly the account that it received, and no account has two tenants.
func (g *garden) checkOwners(given map[string]map[string]bool) {
	g.t.Helper()
	owners := g.owners()
	if len(owners) != len(given) {
		g.t.Errorf("%d tenants have accounts, want %d", len(owners), len(given))
	}
	of := map[string]string{}
	for tenant, accounts := range given {
		if len(accounts) != 1 || len(owners[tenant]) != 1 || !accounts[owners[tenant][0]] {
			g.t.Errorf("tenant %s received %v and has %v", tenant, accounts, owners[tenant])
		}
		for account := range accounts {
			if of[account] != "" {
				g.t.Errorf("%s and %s share %s", tenant, of[account], account)
			}
			of[account] = tenant
		}
	}
}

func TestClaim_ParallelTenants_GetDifferentAccounts(t *testing.T) {
	t.Parallel()
	g := newGarden(t, 100)
	given, refused := g.claimAll(tenants(100))
	if len(refused) > 0 {
		t.Errorf("%d got none: %s", len(refused), refused[0])
	}
	g.checkOwners(given)
}

func TestClaim_EmptyPool_WaitsForAccount(t *testing.T) {
	t.Parallel()
	g := newGarden(t, 100)
	given, refused := g.claimAll(tenants(120))
	if len(given) != 100 || len(refused) != 20 {
		t.Errorf("%d got an account and %d none, want 100 and 20", len(given), len(refused))
	}
	for _, text := range refused {
		if !strings.HasPrefix(text, "retry") || !strings.Contains(text, "no free account in the pool: hyperscaler type azure, without EU access") {
			t.Errorf("refused with %s", text)
		}
	}
	g.checkOwners(given)
}

func TestClaim_ParallelOrders_ShareTenantAccount(t *testing.T) {
	t.Parallel()
	g := newGarden(t, 100)
	var same []string
	for range 100 {
		same = append(same, "ga-1")
	}
	given, refused := g.claimAll(same)
	if len(refused) > 0 {
		t.Errorf("%d got none: %s", len(refused), refused[0])
	}
	g.checkOwners(given)
}

func TestClaim_EUAccess_HasSeparateAccount(t *testing.T) {
	t.Parallel()
	g := newGarden(t, 20)
	p := g.process(nil)
	inside := order(1, "ga-1")
	inside.Context.PlatformRegion = "cf-ch20"
	for range 2 {
		if a, b := p.claim(inside), p.claim(order(2, "ga-1")); !strings.HasPrefix(a, "sb-azure-eu-") || !strings.HasPrefix(b, "sb-azure-pool-") {
			t.Errorf("with EU access %s, without %s", a, b)
		}
	}
	if n := len(g.owners()["ga-1"]); n != 2 {
		t.Errorf("the tenant has %d accounts, want 2", n)
	}
}

// Another process works between any two calls of a slow one.
func TestClaim_AnyCallOrder_SettlesOnce(t *testing.T) {
	t.Parallel()
	// The choice of accounts and their order is random.
	for i := range 4 * 5 * 4 {
		pause, stop := i%4, i/4%5+1
		t.Run(fmt.Sprintf("%d/%d", pause, stop), func(t *testing.T) {
			t.Parallel()
			twoProcesses(t, pause, stop)
		})
	}
}

// twoProcesses runs some calls of one process, some of another one, and then the rest of both.
func twoProcesses(t *testing.T, pause, stop int) {
	t.Helper()
	g := newGarden(t, 3)
	other := make(chan string, 1)
	paused, goOn := make(chan struct{}), make(chan struct{})
	var calls atomic.Int64
	second := g.process(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if int(calls.Add(1)) == stop {
			close(paused)
			<-goOn
		}
		return next.RoundTrip(r)
	})
	var group sync.WaitGroup
	first := g.process(between(pause+1, func() {
		done := make(chan struct{})
		group.Go(func() {
			other <- second.claim(order(2, "ga-1"))
			close(done)
		})
		select {
		case <-paused:
		case <-done:
		}
	}))
	got := first.claim(order(1, "ga-1"))
	close(goOn)
	group.Wait()
	select {
	case account := <-other:
		if account != got {
			t.Errorf("one got %s, the other %s", got, account)
		}
	default: // the first one makes fewer calls
	}
	g.checkOwners(map[string]map[string]bool{"ga-1": {got: true}})
}

// A process ends after each of its calls, before it reads the answer.
func TestClaim_KilledProcess_IsSettledByNext(t *testing.T) {
	t.Parallel()
	for calls := 1; calls <= 4; calls++ {
		t.Run(fmt.Sprint(calls), func(t *testing.T) {
			t.Parallel()
			g := newGarden(t, 5)
			made := 0
			dying := g.process(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
				if made++; made < calls {
					return next.RoundTrip(r)
				} else if made > calls {
					return instead(http.StatusForbidden), nil
				}
				return lost(r, next, http.StatusForbidden)
			})
			if r := dying.run(resolve, order(1, "ga-1")); r.Outcome != event.OutcomeFailed {
				t.Fatalf("the process did not end: %s", r.Outcome)
			}
			got := g.process(nil).claim(order(1, "ga-1"))
			g.checkOwners(map[string]map[string]bool{"ga-1": {got: true}})
			if again := g.process(nil).claim(order(2, "ga-1")); again != got {
				t.Errorf("another instance of the tenant got %s, not %s", again, got)
			}
		})
	}
}

// Each process loses every fifth answer, and starts again.
func TestClaim_RepeatedKills_NeverShareAccount(t *testing.T) {
	t.Parallel()
	g := newGarden(t, 40)
	var count atomic.Int64
	lossy := func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if count.Add(1)%5 == 0 {
			return lost(r, next, http.StatusServiceUnavailable)
		}
		return next.RoundTrip(r)
	}
	given := map[string]map[string]bool{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for i := range 40 {
		tenant := fmt.Sprintf("ga-%d", i%8)
		group.Go(func() {
			got := g.process(lossy).claim(order(i, tenant))
			mu.Lock()
			defer mu.Unlock()
			if given[tenant] == nil {
				given[tenant] = map[string]bool{}
			}
			given[tenant][got] = true
		})
	}
	group.Wait()
	g.checkOwners(given)
}

// lost forwards a call but replaces its answer.
func lost(r *http.Request, next http.RoundTripper, status int) (*http.Response, error) {
	resp, err := next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	return instead(status), resp.Body.Close()
}

func instead(status int) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(""))}
}

func TestClaim_IneligibleAccounts_AreIgnored(t *testing.T) {
	t.Parallel()
	g := newGarden(t, 4)
	g.label("sb-azure-pool-001", map[string]any{"dirty": "true"})
	g.label("sb-azure-pool-002", map[string]any{"dirty": "true"})
	g.label("sb-azure-pool-003", map[string]any{"tenantName": "ga-other"})
	g.api(http.MethodPost, bindings, map[string]any{
		"metadata": map[string]any{"name": "no-secret", "labels": map[string]any{"hyperscalerType": "azure"}},
	}, nil)
	p := g.process(nil)
	if got := p.claim(order(1, "ga-1")); got != "sb-azure-pool-004" {
		t.Errorf("got %s", got)
	}
	if r := p.run(resolve, order(2, "ga-2")); r.Outcome != event.OutcomeRetry {
		t.Errorf("%s, %+v", r.Outcome, r.Error)
	}
	// An account of the tenant without claims is used, too.
	if got := p.claim(order(3, "ga-other")); got != "sb-azure-pool-003" {
		t.Errorf("the tenant with an account got %s", got)
	}
}

func TestClaim_Stale_IsResolvedAgain(t *testing.T) {
	t.Parallel()
	g := newGarden(t, 5)
	p := g.process(nil)
	op := p.run(resolve, order(1, "ga-1")).Then()
	g.calls.Store(0)
	if r := p.run(resolve, op); r.Outcome != event.OutcomeSucceeded || r.Details != nil || g.calls.Load() != 0 {
		t.Errorf("%s, saved %v with %d calls", r.Outcome, r.Details, g.calls.Load())
	}
	g.advance(2 * claimTime)
	g.process(nil).release(order(2, "ga-1")) // marks it as dirty
	if r := p.run(resolve, op); secretOf(r) == "" || len(g.owners()["ga-1"]) != 1 || g.owners()["ga-1"][0] != secretOf(r) {
		t.Errorf("got %q, the tenant has %v", secretOf(r), g.owners()["ga-1"])
	}
	made := op
	made.Details = map[string]any{"hyperscaler": op.Details["hyperscaler"], "provisioner": map[string]any{"runtimeId": "r", "operationId": "o"}}
	if r := p.run(resolve, made); r.Details != nil {
		t.Errorf("the account of an existing runtime was changed to %v", r.Details)
	}
	// The removal of the runtime began before the suspension of the instance failed.
	removed := op
	removed.Details = map[string]any{"hyperscaler": op.Details["hyperscaler"], "provisioner": map[string]any{"runtimeId": "r"}}
	if r := p.run(resolve, removed); secretOf(r) == "" || secretOf(r) != g.owners()["ga-1"][0] {
		t.Errorf("got %q, the tenant has %v", secretOf(r), g.owners()["ga-1"])
	}
}

// The real pool has both kinds: an internal account is never released, and trials ignore the label dirty.
func TestClaim_InternalAndDirtySharedAccounts_AreTaken(t *testing.T) {
	t.Parallel()
	g := newGarden(t, 1)
	g.label("sb-azure-pool-001", map[string]any{"internal": "true"})
	for _, name := range []string{"sb-azure-shared-001", "sb-azure-shared-002", "sb-azure-shared-003"} {
		g.label(name, map[string]any{"dirty": "true"})
	}
	p := g.process(nil)
	if got := p.claim(order(1, "ga-1")); got != "sb-azure-pool-001" {
		t.Errorf("got %q", got)
	}
	trial := order(2, "ga-2")
	trial.Plan.Name = "trial"
	if got := p.claim(trial); !strings.HasPrefix(got, "sb-azure-shared-") {
		t.Errorf("a trial got %q", got)
	}
}

// An instance of a moved subaccount claims for its new account, and that claim is released.
func TestClaim_AfterAMove_IsOfTheNewAccount(t *testing.T) {
	t.Parallel()
	g := newGarden(t, 2)
	p := g.process(nil)
	moved := order(1, "ga-2")
	moved.Context.SubscriptionGlobalAccountID = "ga-1"
	r := p.run(resolve, moved)
	account := secretOf(r)
	// An account of ga-1 is not shared with ga-2.
	if old := p.claim(order(2, "ga-1")); old == account {
		t.Errorf("two accounts share %s", old)
	}
	if owners := g.owners(); len(owners["ga-2"]) != 1 || owners["ga-2"][0] != account {
		t.Fatalf("claimed %q, owners %v", account, owners)
	}
	p.release(r.Then())
	if !g.dirty(account) {
		t.Error("it was not released")
	}
}

func TestTrial_SharedAccounts_UsesLeastUsed(t *testing.T) {
	t.Parallel()
	g := newGarden(t, 5)
	for i, account := range []string{"sb-azure-shared-001", "sb-azure-shared-001", "sb-azure-shared-003"} {
		g.shoot(fmt.Sprintf("c-%d", i), account)
	}
	p := g.process(nil)
	trial := func(i int) string {
		op := order(i, "ga-1")
		op.Plan.Name = "trial"
		op.Context.PlatformRegion = "cf-eu11" // is ignored
		return p.claim(op)
	}
	if got := trial(0); got != "sb-azure-shared-002" {
		t.Errorf("got %s", got)
	}
	for i, account := range []string{"sb-azure-shared-002", "sb-azure-shared-002", "sb-azure-shared-003"} {
		g.shoot(fmt.Sprintf("d-%d", i), account)
	}
	got := map[string]bool{}
	for i := range 30 {
		got[trial(i)] = true
	}
	if len(got) != 3 {
		t.Errorf("a burst took only %v", got)
	}
	if n := len(g.owners()); n != 0 {
		t.Errorf("%d tenants own an account", n)
	}
}

// BenchmarkClaims measures claims by new tenants: 4 processes with 32 parallel steps, 40 ms per call.
func BenchmarkClaims(b *testing.B) {
	const tenants, concurrency = 200, 32
	var took time.Duration
	var calls int64
	for range b.N {
		g := newGarden(b, 2*tenants)
		g.latency = 40 * time.Millisecond
		var all []*process
		for range processes {
			all = append(all, g.process(nil))
		}
		start := time.Now()
		var next atomic.Int64
		var group sync.WaitGroup
		for _, p := range all {
			for range concurrency {
				group.Go(func() {
					for i := next.Add(1); i <= tenants; i = next.Add(1) {
						p.claim(order(int(i), fmt.Sprintf("ga-%d", i)))
					}
				})
			}
		}
		group.Wait()
		took += time.Since(start)
		calls += g.calls.Load()
	}
	b.ReportMetric(float64(b.N*tenants)/took.Seconds(), "claims/s")
	b.ReportMetric(float64(calls)/float64(b.N*tenants), "calls/claim")
}
