package hyperscaler_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker/workertest"
)

// dirty reports whether an account is marked for cleaning.
func (g *garden) dirty(name string) bool {
	g.t.Helper()
	return g.accounts()[name].Metadata.Labels["dirty"] == "true"
}

// between calls do before one call of a process, counted from 1.
func between(call int, do func()) func(*http.Request, http.RoundTripper) (*http.Response, error) {
	n := 0
	return func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if n++; n == call {
			do()
		}
		return next.RoundTrip(r)
	}
}

func TestRelease_AccountInUse_IsKept(t *testing.T) {
	t.Parallel()
	g := newGarden(t, 5)
	p := g.process(nil)
	account := p.claim(order(1, "ga-1"))
	p.claim(order(2, "ga-1"))
	g.shoot("c-1", account)

	p.release(order(1, "ga-1"))
	if g.dirty(account) {
		t.Error("the account was released although a cluster uses it")
	}
	g.api(http.MethodDelete, shoots+"/c-1", nil, nil)
	p.release(order(1, "ga-1"))
	if g.dirty(account) {
		t.Error("the account was released despite the claim of an order without a cluster")
	}
	p.release(order(2, "ga-1"))
	if !g.dirty(account) {
		t.Error("the unused account was not released")
	}
	p.release(order(2, "ga-1")) // again, after a kill
}

func TestRelease_ExpiredClaim_IsIgnored(t *testing.T) {
	t.Parallel()
	g := newGarden(t, 5)
	p := g.process(nil)
	account := p.claim(order(1, "ga-1"))
	p.claim(order(2, "ga-1"))
	g.advance(claimTime)
	p.release(order(2, "ga-1"))
	if !g.dirty(account) {
		t.Error("the account was not released although the other claim expired")
	}
}

func TestRelease_OtherAccounts_AreKept(t *testing.T) {
	t.Parallel()
	g := newGarden(t, 5)
	for name, labels := range map[string]map[string]any{
		"sb-azure-pool-001":   {"tenantName": "ga-1", "internal": "true"},
		"sb-azure-shared-001": {"tenantName": "ga-1"},
		"sb-azure-pool-002":   {"tenantName": "ga-2"},
		"sb-azure-pool-003":   {"tenantName": "ga-1"},
	} {
		g.label(name, labels)
	}
	moved := order(1, "ga-new")
	moved.Context.SubscriptionGlobalAccountID = "ga-1"
	g.process(nil).release(moved)
	for name, o := range g.accounts() {
		if got, want := o.Metadata.Labels["dirty"] == "true", name == "sb-azure-pool-003"; got != want {
			t.Errorf("%s: dirty %v", name, got)
		}
	}
}

func TestRelease_IncompleteInstance_IsSkipped(t *testing.T) {
	t.Parallel()
	g := newGarden(t, 1)
	p := g.process(nil)
	for name, change := range map[string]func(*workertest.Operation){
		"no provider":      func(op *workertest.Operation) { op.Runtime.Provider = "" },
		"no tenant":        func(op *workertest.Operation) { op.Context.GlobalAccountID = "" },
		"no account":       func(*workertest.Operation) {},
		"unknown provider": func(op *workertest.Operation) { op.Runtime.Provider = "none" },
	} {
		op := order(1, "ga-1")
		op.Type = event.Deprovision
		change(&op)
		if r := p.run(release, op); r.Outcome != event.OutcomeSucceeded && r.Outcome != event.OutcomeSkipped {
			t.Errorf("%s: %s, %+v", name, r.Outcome, r.Error)
		}
	}
}

// The other instance of the tenant claims its account between any two calls of the release.
func TestRelease_ConcurrentClaim_GetsCleanAccount(t *testing.T) {
	t.Parallel()
	for call := 1; call <= 3; call++ {
		t.Run(fmt.Sprint(call), func(t *testing.T) {
			t.Parallel()
			g := newGarden(t, 5)
			account := g.process(nil).claim(order(1, "ga-1"))
			var got string
			p := g.process(between(call, func() { got = g.process(nil).claim(order(2, "ga-1")) }))
			p.release(order(1, "ga-1"))
			if got != account || g.dirty(got) {
				t.Errorf("got %s, which is dirty: %v", got, g.dirty(got))
			}
			g.checkOwners(map[string]map[string]bool{"ga-1": {got: true}})
		})
	}
}

// The release happens between any two calls of the claim.
func TestClaim_ConcurrentRelease_KeepsAccountClean(t *testing.T) {
	t.Parallel()
	for call := 1; call <= 2; call++ {
		t.Run(fmt.Sprint(call), func(t *testing.T) {
			t.Parallel()
			g := newGarden(t, 5)
			account := g.process(nil).claim(order(1, "ga-1"))
			p := g.process(between(call, func() { g.process(nil).release(order(1, "ga-1")) }))
			got := p.claim(order(2, "ga-1"))
			if got == account || g.dirty(got) {
				t.Errorf("got %s, which is dirty: %v", got, g.dirty(got))
			}
			g.checkOwners(map[string]map[string]bool{"ga-1": {got: true}})
			for name := range g.accounts()[account].Metadata.Annotations {
				if strings.HasPrefix(name, "claim.") {
					t.Errorf("the released account keeps %s", name)
				}
			}
		})
	}
}
