package ramp

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/hold"
	"github.com/kyma-project/keb/services/orchestrator/internal/liveness"
)

// scene has one removed ramp of edp, the bus, the workers and the dispatcher.
type scene struct {
	t       *testing.T
	now     time.Time
	removed []Ramp
	taken   liveness.Taken
	// failing is the call that fails.
	failing string
	// left is the answer of the dispatcher, which asks about the commands of one and other.
	left       int
	one, other *event.Operation
	// sentAt is when their commands were sent.
	sentAt time.Time
	// before, ramped and held are what the dispatcher was told about them in its last call.
	before       time.Time
	ramped, held []bool
	calls        []string
	removal      *Removal
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{t: t, now: noon, sentAt: noon.Add(-time.Second), one: operation(), other: operation()}
	s.removed = []Ramp{
		{Worker: "edp", Version: "2.0.0", Percent: 100, Scope: hold.Scope{Operation: s.one.ID}, CreatedAt: noon.Add(-time.Hour), RemovedAt: noon},
	}
	s.removal = NewRemoval(time.Second, RemovalDeps{
		Removed: func() []Ramp { return s.removed }, Workers: s, Dispatcher: s, Now: func() time.Time { return s.now }, Log: slog.New(slog.DiscardHandler),
		Purge: func(_ context.Context, worker string) error { return s.call("purge " + worker) },
		Drop: func(_ context.Context, worker string) error {
			s.removed = nil
			return s.call("drop " + worker)
		},
	})
	return s
}

func (s *scene) call(name string) error {
	s.calls = append(s.calls, name)
	if s.failing == name {
		return errors.New("unavailable")
	}
	return nil
}

func (s *scene) Taken(context.Context) (liveness.Taken, error) { return s.taken, s.call("taken") }

func (s *scene) AfterRamp(_ context.Context, worker string, before time.Time, ramped func(*event.Operation, time.Time) bool, held func(string, time.Time) bool) (
	sent, left int, err error,
) {
	s.before, s.ramped, s.held = before, nil, nil
	for _, op := range []*event.Operation{s.one, s.other} {
		s.ramped = append(s.ramped, ramped(op, noon.Add(-time.Minute)))
		s.held = append(s.held, held(event.CommandID(op.ID, 7), s.sentAt))
	}
	return 0, s.left, s.call("send " + worker)
}

// round runs a round after some time and compares the calls.
func (s *scene) round(after time.Duration, want ...string) {
	s.t.Helper()
	s.now, s.calls = s.now.Add(after), nil
	s.removal.round(s.t.Context())
	if !slices.Equal(s.calls, want) {
		s.t.Errorf("%s after the removal: %q, want %q", s.now.Sub(noon), s.calls, want)
	}
}

var complete = []string{"purge edp", "taken", "send edp"}

func TestRemoval_Settled_PurgesSendsAndDrops(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.round(Settle - time.Millisecond) // an orchestrator may not have read the removal
	s.round(time.Millisecond, "purge edp")
	s.round(time.Second, slices.Concat(complete, []string{"drop edp"})...)
	if !s.before.Equal(noon.Add(Settle)) || !slices.Equal(s.ramped, []bool{true, false}) || !slices.Equal(s.held, []bool{false, false}) {
		t.Errorf("commands before %s, ramped %v, held %v; want that of the first operation, and none held", s.before, s.ramped, s.held)
	}
	s.round(time.Second)
	s.removed = []Ramp{{Worker: "edp", Version: "3.0.0", Percent: 100, RemovedAt: s.now}}
	s.round(Settle, "purge edp") // a later removal begins anew
}

func TestRemoval_CommandHeld_WaitsForIt(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.left = 1
	s.round(Settle, "purge edp")
	for name, c := range map[string]struct {
		taken liveness.Taken
		// sent is when the commands were sent, since the removal.
		sent time.Duration
		held []bool
	}{
		"a replica executes the first command": {liveness.Taken{Commands: map[string]bool{event.CommandID(s.one.ID, 7): true}}, -time.Second, []bool{true, false}},
		"a ramped replica has not reported":    {liveness.Taken{Silent: map[string]bool{"edp": true, event.Ramped("edp"): true}}, -time.Second, []bool{true, true}},
		"another replica has not reported":     {liveness.Taken{Silent: map[string]bool{"edp": true}}, -time.Second, []bool{false, false}},
		"another replica may execute them":     {liveness.Taken{Silent: map[string]bool{"edp": true}}, time.Second, []bool{true, true}},
		"no replica has fetched them":          {liveness.Taken{}, time.Second, []bool{false, false}},
	} {
		s.taken, s.sentAt = c.taken, noon.Add(c.sent)
		s.round(time.Second, complete...)
		if !slices.Equal(s.held, c.held) {
			t.Errorf("%s: held %v, want %v", name, s.held, c.held)
		}
	}
	s.round(promptFor, complete...) // from now on less often
	s.round(laterEvery - time.Millisecond)
	s.left = 0
	s.round(time.Millisecond, slices.Concat(complete, []string{"drop edp"})...)
}

func TestRemoval_CallFails_IsRepeated(t *testing.T) {
	t.Parallel()
	for _, failing := range slices.Concat(complete, []string{"drop edp"}) {
		s := newScene(t)
		s.round(Settle, "purge edp")
		ramps := s.removed
		s.failing = failing
		want := slices.Concat(complete, []string{"drop edp"})
		s.round(time.Second, want[:slices.Index(want, failing)+1]...)
		s.failing, s.removed = "", ramps
		s.round(time.Second, want...)
	}
	s := newScene(t)
	s.failing = "purge edp"
	s.round(Settle, "purge edp")
	s.failing = ""
	s.round(time.Second, "purge edp") // the pause between purge and question is kept
	s.round(time.Second, slices.Concat(complete, []string{"drop edp"})...)
}

func TestRemoval_NotRead_ChangesNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.removed = nil
	s.round(time.Hour)
}
