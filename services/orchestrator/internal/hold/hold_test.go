package hold_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/orchestrator/internal/hold"
)

var epoch = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

var operation = event.Operation{
	ID: "0193a3c5-0000-7000-8000-000000000001", Type: event.Provision, InstanceID: "i-1", Plan: event.Plan{ID: "4deee563", Name: "azure"},
	Context: event.Context{GlobalAccountID: "ga-1"}, Runtime: event.Runtime{Region: "westeurope"},
}

var create = process.Step{Name: "Create", Worker: "provisioner", Systems: []string{"director", "gardener"}}

func TestScope_Matches_AllMembersThatAreSet(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name             string
		scope            hold.Scope
		pending, current bool // the operation before its start, and at the step Create of worker provisioner
	}{
		{"operation", hold.Scope{Operation: operation.ID}, true, true},
		{"instance", hold.Scope{Instance: "i-1"}, true, true},
		{"global account", hold.Scope{GlobalAccount: "ga-1"}, true, true},
		{"plan by name", hold.Scope{Plan: "azure"}, true, true},
		{"plan by id", hold.Scope{Plan: "4deee563"}, true, true},
		{"region", hold.Scope{Region: "westeurope"}, true, true},
		{"type", hold.Scope{Type: event.Provision}, true, true},
		{"all", hold.Scope{operation.ID, "i-1", "ga-1", "azure", "westeurope", event.Provision, "Create", "provisioner", "gardener"}, false, true},
		{"step", hold.Scope{Step: "Create"}, false, true},
		{"worker", hold.Scope{Worker: "provisioner"}, false, true},
		{"system", hold.Scope{System: "gardener"}, false, true},
		{"second system", hold.Scope{System: "director"}, false, true},
		{"system of the worker's name, which the step does not call", hold.Scope{System: "provisioner"}, false, false},
		{"other step", hold.Scope{Step: "Check"}, false, false},
		{"other worker", hold.Scope{Worker: "avs", Step: "Create"}, false, false},
		{"other plan", hold.Scope{Plan: "aws", Instance: "i-1"}, false, false},
		{"other account", hold.Scope{GlobalAccount: "ga-2"}, false, false},
		{"other region", hold.Scope{Region: "eastus"}, false, false},
		{"other type", hold.Scope{Type: event.Update}, false, false},
		{"other instance", hold.Scope{Instance: "i-2"}, false, false},
		{"other operation", hold.Scope{Operation: "0193a3c5-0000-7000-8000-000000000002"}, false, false},
	} {
		if got := tt.scope.Matches(&operation, nil); got != tt.pending {
			t.Errorf("%s: a pending operation matches: %t, want %t", tt.name, got, tt.pending)
		}
		if got := tt.scope.Matches(&operation, &create); got != tt.current {
			t.Errorf("%s: the step matches: %t, want %t", tt.name, got, tt.current)
		}
	}
}

func TestHold_Validate_ReportsEveryProblem(t *testing.T) {
	t.Parallel()
	valid := hold.Hold{Scope: hold.Scope{Plan: "azure"}, Reason: "outage"}
	require.NoError(t, valid.Validate(epoch))
	bad := hold.Hold{
		Scope:  hold.Scope{Operation: "x", Type: "y", Worker: "a\nb", Step: strings.Repeat("s", 201)},
		Reason: " ", Until: epoch,
	}
	err := bad.Validate(epoch)
	for _, want := range []string{"scope.operation", "scope.type", "scope.worker", "scope.step", "reason", "until"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want it to name %s", err, want)
		}
	}
	for _, tt := range []struct {
		scope hold.Scope
		want  string
	}{
		{hold.Scope{Plan: "azure", GlobalAccount: "ga-1", Region: "eastus", Instance: "i-1"}, ""},
		{hold.Scope{Plan: "azure", Type: event.Provision}, ""},
		{hold.Scope{Type: event.Update}, ""},
		{hold.Scope{Plan: "azure", Type: event.Deprovision}, "orders reject: scope.type"},
		{hold.Scope{Type: event.UpgradeKyma}, "orders reject: scope.type"},
		{hold.Scope{Plan: "azure", Step: "Create"}, "orders reject: the scope"},
		{hold.Scope{Plan: "azure", Worker: "avs"}, "orders reject: the scope"},
		{hold.Scope{Operation: operation.ID}, "orders reject: the scope"},
	} {
		h := hold.Hold{Scope: tt.scope, RejectsOrders: true, Reason: "abuse"}
		err := h.Validate(epoch)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("scope %+v: error %v, want %q", tt.scope, err, tt.want)
		}
	}
	bad = valid
	if bad.Scope = (hold.Scope{}); bad.Validate(epoch) == nil {
		t.Error("an empty scope is valid")
	}
}

type fakeStore struct {
	holds   []hold.Hold
	err     error
	dropped int
}

func (f *fakeStore) Holds(context.Context) ([]hold.Hold, error) { return f.holds, f.err }

func (f *fakeStore) DropEndedHolds(context.Context, time.Time) error { f.dropped++; return nil }

func TestCache_Refresh_AppliesHoldsUntilTheyEnd(t *testing.T) {
	t.Parallel()
	clock := testkit.NewClock(epoch)
	f := &fakeStore{holds: []hold.Hold{
		{ID: "a", Scope: hold.Scope{Plan: "azure"}, Until: epoch.Add(time.Minute)}, {ID: "b", Scope: hold.Scope{Worker: "provisioner"}},
	}}
	var woken []time.Time
	c := hold.NewCache(time.Second, f, nil, clock.Now,
		func(at time.Time) { woken = append(woken, at) }, slog.New(slog.DiscardHandler))
	want := func(id string) {
		t.Helper()
		if got := c.Match(&operation, &create); got != id {
			t.Errorf("hold %q, want %q", got, id)
		}
	}
	want("")
	require.NoError(t, c.Refresh(t.Context()))
	want("a")
	if len(woken) != 1 || !woken[0].Equal(epoch.Add(time.Minute)) {
		t.Errorf("woken at %v, want the end of the hold", woken)
	}
	clock.Advance(time.Minute)
	want("b")
	if got := c.Active(); len(got) != 1 || got[0] != "b" {
		t.Errorf("active holds %v, want b", got)
	}
	require.NoError(t, c.Refresh(t.Context()))
	if f.dropped != 1 {
		t.Errorf("ended holds were deleted %d times, want once", f.dropped)
	}
	f.err = errors.New("away")
	require.Error(t, c.Refresh(t.Context()))
	want("b") // the last known holds apply
	f.holds, f.err, woken = nil, nil, nil
	require.NoError(t, c.Refresh(t.Context()))
	want("")
	if len(woken) == 0 || woken[0].After(clock.Now()) {
		t.Errorf("woken at %v, want now, because holds have gone", woken)
	}
}
