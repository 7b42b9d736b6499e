package engine_test

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// schedules is how many schedules a test runs.
func schedules() uint64 {
	if testing.Short() {
		return 1000
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-race" && s.Value == "true" {
				return 2000
			}
		}
	}
	return 20000
}

func TestTheInvariantsHoldUnderEverySchedule(t *testing.T) {
	t.Parallel()
	everySchedule(t, load(t, provision), load(t, deprovision))
}

func TestTheInvariantsHoldWithAFinallyStage(t *testing.T) {
	t.Parallel()
	everySchedule(t, load(t, provision+finally), load(t, deprovision))
}

func everySchedule(t *testing.T, provision, deprovision *process.Process) {
	t.Helper()
	const parts = 4
	for part := range uint64(parts) {
		t.Run(fmt.Sprint("part ", part), func(t *testing.T) {
			t.Parallel()
			for seed := part; seed < schedules(); seed += parts {
				if problem := simulate(seed, engine.Apply, provision, deprovision, nil); problem != "" {
					var log []string
					simulate(seed, engine.Apply, provision, deprovision, &log)
					t.Fatalf("seed %d: %s\n%s", seed, problem, strings.Join(log, "\n"))
				}
			}
		})
	}
}

// simulate runs one schedule and returns what went wrong, or "". The log is written if there is one to write.
func simulate(seed uint64, apply applyFunc, provision, deprovision *process.Process, log *[]string) (problem string) {
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), apply: apply, now: epoch, taken: map[messageID]bool{}, traced: log != nil}
	defer func() {
		switch v := recover().(type) {
		case nil:
		case violation:
			problem = string(v)
			w.trace("VIOLATION: %s", v)
		default:
			panic(v)
		}
		if log != nil {
			*log = w.log
		}
	}()
	plan := "azure"
	if w.one(4) {
		plan = "trial"
	}
	w.request(provision, plan)
	for range 40 + w.rng.IntN(120) {
		w.chaos(deprovision)
	}
	w.settle()
	return ""
}

// chaos does one thing that may happen at any time.
func (w *world) chaos(deprovision *process.Process) {
	switch n := w.rng.IntN(200); {
	case n < 60:
		w.work()
	case n < 140:
		w.fold(n % len(w.shells))
	case n < 152:
		w.sweep()
	case n < 160:
		w.admit()
	case n < 168:
		w.now = w.now.Add(time.Duration(w.rng.IntN(5000)) * time.Millisecond)
	case n < 182:
		if at := w.timer(); at.After(w.now) {
			w.now = at
			w.sweep()
		}
	case n < 185:
		w.now = w.now.Add(time.Duration(w.rng.IntN(20*60)) * time.Second)
	case n < 187:
		w.absent = !w.absent
	case n < 189:
		w.trace("streams are lost")
		w.taken = map[messageID]bool{}
		if w.one(2) {
			w.commands = nil
		}
		if w.one(2) {
			w.results = nil
		}
	case n < 192:
		clear(w.taken) // the duplicate window has passed
	case n < 193:
		w.cancelSome()
	case n < 196:
		w.retrySome()
	case n < 198:
		w.skipSome()
	case len(w.operations) < len(w.shells[0].cache):
		w.request(deprovision, w.operations[0].state.Operation.Plan.Name)
	}
}

func (w *world) cancelSome() {
	i := w.rng.IntN(len(w.operations))
	op := w.operations[i]
	f := op.p.Finally()
	over := op.state.Status.Final() || op.state.Status == event.InProgress && f >= 0 && op.state.Stage >= f
	if done := w.act(i, engine.Cancel{Reason: "not wanted"}); done == over {
		w.violate("an operation that is %s has let itself be cancelled: %t", op.state.Status, done)
	}
}

func (w *world) retrySome() {
	i := w.rng.IntN(len(w.operations))
	failed := w.operations[i].state.Status == event.Failed
	if done := w.act(i, engine.Retry{By: "me"}); done != failed {
		w.violate("operation %d has let itself be retried: %t, failed: %t", i, done, failed)
	}
}

func (w *world) skipSome() {
	i := w.rng.IntN(len(w.operations))
	op := w.operations[i]
	step := "none"
	at := op.state.Position(op.p)
	if at != nil {
		step = at.Step
	}
	if done := w.act(i, engine.SkipStep{Step: step, By: "me"}); done != (at != nil) {
		w.violate("operation %d has let step %s be skipped: %t", i, step, done)
	}
}

// settle lets everything work again. Every operation must then come to its end.
func (w *world) settle() {
	w.calm, w.absent = true, false
	for i := range w.shells {
		w.shells[i].phase = idle
	}
	for range 2000 {
		left := false
		for _, op := range w.operations {
			left = left || !op.state.Status.Final()
		}
		if !left {
			return
		}
		switch {
		case len(w.results) > 0 || w.shells[0].phase != idle:
			w.fold(0)
		case len(w.commands) > 0:
			w.work()
		default:
			w.admit()
			if at := w.timer(); at.After(w.now) && len(w.commands) == 0 {
				w.now = at
			}
			w.sweep()
		}
	}
	w.violate("the operations do not come to their end: %s", w.states())
}

func (w *world) states() string {
	var b strings.Builder
	for i, op := range w.operations {
		fmt.Fprintf(&b, "%d: %s %d/%d cursor %d due %s execute before %s; ", i, op.state.Status, op.state.Stage, op.state.Step,
			op.state.Cursor, op.state.DueAt, op.state.ExecuteBefore)
	}
	return b.String()
}

func TestAScheduleIsTheSameEveryTime(t *testing.T) {
	t.Parallel()
	provision, deprovision := load(t, provision), load(t, deprovision)
	for seed := range uint64(20) {
		var first, second []string
		simulate(seed, engine.Apply, provision, deprovision, &first)
		simulate(seed, engine.Apply, provision, deprovision, &second)
		if diff := cmp.Diff(first, second); diff != "" || len(first) == 0 {
			t.Fatalf("seed %d: %d lines, the second run differs:\n%s", seed, len(first), diff)
		}
	}
}
