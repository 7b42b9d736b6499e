package ramp

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/hold"
)

// noon is the creation of the first ramp, and began the start of the first operation that it concerns.
var (
	noon  = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	began = noon.Add(Settle)
)

func operation() *event.Operation {
	return &event.Operation{ID: uuid.NewString(), Type: event.Provision}
}

func TestVersion_Percent_IsTheShareOfOperations(t *testing.T) {
	t.Parallel()
	ramps := []Ramp{{Worker: "edp", Version: "2.0.0", Percent: 10, CreatedAt: noon}}
	const all = 20_000
	n, others := 0, 0
	for range all {
		op := operation()
		version := Version(ramps, op, "edp", began)
		if version != "" {
			n++
		}
		if version != Version(ramps, op, "edp", began.Add(time.Hour)) {
			t.Fatal("an operation changes its version")
		}
		if Version(ramps, op, "avs", began) != "" || Version(ramps, op, "edp", began.Add(-time.Millisecond)) != "" {
			others++
		}
	}
	if n < all*8/100 || n > all*12/100 || others > 0 {
		t.Errorf("%d of %d operations are ramped, want about 10 %%; %d of another worker or from before", n, all, others)
	}
}

func TestVersion_LaterRamp_LeavesStartedOperations(t *testing.T) {
	t.Parallel()
	ramps := []Ramp{
		{Worker: "edp", Version: "2.0.0", Percent: 50, CreatedAt: noon},
		{Worker: "edp", Version: "2.0.0", Percent: 1, CreatedAt: noon.Add(time.Hour)},
	}
	before, after := 0, 0
	for range 10_000 {
		op := operation()
		early := Version(ramps[:1], op, "edp", began)
		if early != Version(ramps, op, "edp", began) {
			t.Fatal("an operation loses its version although the ramp is not removed")
		}
		if early != "" {
			before++
		}
		if Version(ramps, op, "edp", began.Add(time.Hour)) != "" {
			after++
		}
	}
	if before < 4500 || after > 300 {
		t.Errorf("%d operations are ramped with 50 %%, %d with 1 %%", before, after)
	}
}

func TestVersion_Pin_ComesFirst(t *testing.T) {
	t.Parallel()
	op := operation()
	op.Context.GlobalAccountID = "ga"
	pin := Ramp{Worker: "edp", Version: "2.0.0", Percent: 100, Scope: hold.Scope{GlobalAccount: "ga"}, CreatedAt: noon}
	one := Ramp{Worker: "edp", Version: "2.0.0", Percent: 100, Scope: hold.Scope{Operation: op.ID}, CreatedAt: noon.Add(time.Hour)}
	low := Ramp{Worker: "edp", Version: "2.0.0", Percent: 1, CreatedAt: noon.Add(time.Minute)}
	for bucket(op.ID, "edp") < 1 {
		op.ID = uuid.NewString()
		one.Scope.Operation = op.ID
	}
	for name, c := range map[string]struct {
		ramps []Ramp
		start time.Time
		want  string
	}{
		"the scope matches":                         {[]Ramp{pin, low}, noon.Add(time.Hour), "2.0.0"},
		"the operation started before":              {[]Ramp{pin, low}, noon.Add(-time.Hour), ""},
		"a ramp for it applies although it started": {[]Ramp{low, one}, noon, "2.0.0"},
		"only the percentage":                       {[]Ramp{low}, noon.Add(time.Hour), ""},
	} {
		if got := Version(c.ramps, op, "edp", c.start); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestRamp_Validate_NamesTheField(t *testing.T) {
	t.Parallel()
	good := Ramp{Worker: "edp", Version: "2.0.0", Percent: 10, Reason: "test"}
	if err := good.Validate(noon); err != nil {
		t.Error(err)
	}
	for _, spoil := range []func(r *Ramp){
		func(r *Ramp) { r.Worker = "No_Worker" }, func(r *Ramp) { r.Worker = event.UserBroker }, func(r *Ramp) { r.Version = " " },
		func(r *Ramp) { r.Percent = 0 }, func(r *Ramp) { r.Percent = 101 }, func(r *Ramp) { r.Reason = "" },
		func(r *Ramp) { r.Scope.Step = "EDP_Registration" }, func(r *Ramp) { r.Scope.Operation = "x" },
	} {
		bad := good
		spoil(&bad)
		if err := bad.Validate(noon); err == nil {
			t.Errorf("%+v is valid", bad)
		}
	}
}
