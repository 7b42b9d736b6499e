package census_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/census"
	"github.com/kyma-project/keb/services/orchestrator/internal/liveness"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
	"github.com/kyma-project/keb/services/orchestrator/processes"
)

// fakes implements a database with fixed groups, the built-in definitions, and workers of which one may be missing.
type fakes struct {
	groups []store.Group
	counts int
	away   string
	p      *process.Process
}

func (f *fakes) Census(context.Context) (store.Census, error) {
	f.counts++
	return store.Census{Groups: f.groups}, nil
}

func (f *fakes) Pinned(context.Context, string) (*process.Process, error) { return f.p, nil }

func (f *fakes) Set() process.Set { return nil }

func (f *fakes) Workers() []liveness.Worker { return nil }

func (f *fakes) Serves(worker, _ string) bool { return worker != f.away }

func TestTally_WaitReasons_UseCurrentWorkers(t *testing.T) {
	t.Parallel()
	set, err := process.Load(processes.FS)
	require.NoError(t, err)
	p := set[event.Provision]
	step := p.Stages[1].Steps[0]
	at := func(state event.OperationState, held bool, stage, step int) store.Group {
		return store.Group{Type: event.Provision, State: state, Held: held, Stage: stage, Step: step, Count: 1}
	}
	f := &fakes{p: p, groups: []store.Group{
		at(event.Pending, false, 0, 0), at(event.Pending, true, 0, 0), at(event.InProgress, false, 1, 0), at(event.InProgress, true, 1, 0),
		at(event.InProgress, false, len(p.Stages), 0),
	}}
	c := census.New(census.Deps{Operations: f, Definitions: f, Workers: f})
	type seen struct {
		Reason              store.Reason
		Worker, Stage, Step string
	}
	read := func() []seen {
		t.Helper()
		r, err := c.Read(t.Context())
		require.NoError(t, err)
		var out []seen
		for _, g := range r.Groups {
			out = append(out, seen{g.Reason, g.Worker, g.Stage, g.Step})
		}
		return out
	}
	here := func(reason store.Reason) seen { return seen{reason, step.Worker, p.Stages[1].Name, step.Name} }
	want := []seen{
		{Reason: store.WaitsForAdmission}, {Reason: store.WaitsForInstance}, here(store.Executing), here(store.WaitsForRetry), {Reason: store.Executing},
	}
	if diff := cmp.Diff(want, read()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f.away = step.Worker
	want[2] = here(store.WaitsForWorker) // a retry waits for its time, with or without a worker
	if diff := cmp.Diff(want, read()); diff != "" {
		t.Errorf("without the worker (-want +got):\n%s", diff)
	}
	if f.counts != 1 {
		t.Errorf("operations were counted %d times, want once", f.counts)
	}
}
