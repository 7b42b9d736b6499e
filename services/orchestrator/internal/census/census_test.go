package census_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/census"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
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

func (f *fakes) CommandUse(context.Context) (inUse, waiting map[string]int, err error) {
	return nil, nil, nil
}

func (f *fakes) LimitUse(context.Context) (running, waiting map[limit.Queue]int, err error) {
	return nil, nil, nil
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
	f := &fakes{p: p, groups: []store.Group{
		{State: event.Pending, Reason: operator.Admission},
		{State: event.Pending, Reason: operator.InstanceBusy},
		{State: event.InProgress, Reason: operator.Executing, InFlight: true, Stage: 1},
		{State: event.InProgress, Reason: operator.Polling, Stage: 1},
		{State: event.InProgress, Reason: operator.Failing, InFlight: true, Stage: 1, ReasonStep: 1},
		{State: event.InProgress, Reason: operator.Executing, InFlight: true, Stage: len(p.Stages)},
	}}
	c := census.New(census.Deps{Operations: f, Definitions: f, Workers: f})
	type seen struct {
		Reason              operator.WaitingReason
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
	here := func(reason operator.WaitingReason, s process.Step) seen {
		return seen{reason, s.Worker, p.Stages[1].Name, s.Name}
	}
	want := []seen{
		{Reason: operator.Admission},
		{Reason: operator.InstanceBusy},
		here(operator.Executing, step), here(operator.Polling, step),
		here(operator.Failing, p.Stages[1].Steps[1]),
		{Reason: operator.Executing},
	}
	if diff := cmp.Diff(want, read()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f.away = step.Worker
	// Polling waits for its time, with or without a worker. The repeated stage needs its first step.
	want[2], want[4] = here(operator.NoWorker, step), here(operator.NoWorker, step)
	if diff := cmp.Diff(want, read()); diff != "" {
		t.Errorf("without the worker (-want +got):\n%s", diff)
	}
	if f.counts != 1 {
		t.Errorf("operations were counted %d times, want once", f.counts)
	}
}
