package census

import (
	"context"
	"log/slog"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// slowFake has commands in flight and usual durations, and records marked operations.
type slowFake struct {
	p        *process.Process
	usual    map[store.StepName]store.StepDuration
	commands []store.SentCommand
	marked   []string
}

func (f *slowFake) StepDurations(context.Context, time.Time) (map[store.StepName]store.StepDuration, error) {
	return f.usual, nil
}

func (f *slowFake) LowestID() string { return "" }

func (f *slowFake) SentCommands(context.Context, string, int) ([]store.SentCommand, error) {
	return f.commands, nil
}

func (f *slowFake) Set() process.Set { return nil }

func (f *slowFake) Pinned(context.Context, string) (*process.Process, error) { return f.p, nil }

func (f *slowFake) MarkSlow(_ context.Context, c store.SentCommand) error {
	f.marked = append(f.marked, c.OperationID)
	return nil
}

func TestSlow_Round_MarksExecutionsThatTakeLongOnce(t *testing.T) {
	t.Parallel()
	set, err := process.Load(fstest.MapFS{"update.yaml": {Data: []byte(
		"operation: update\nstages:\n  - {name: s, steps: [{name: Fast, worker: a}, {name: Long, worker: a}, {name: Rare, worker: a}]}\n")}})
	require.NoError(t, err)
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	command := func(id string, step int, took time.Duration) store.SentCommand {
		return store.SentCommand{OperationID: id, Cursor: 1, Dispatch: 1, Step: step, SentAt: now.Add(-took)}
	}
	f := &slowFake{
		p: set[event.Update],
		usual: map[store.StepName]store.StepDuration{
			{Worker: "a", Step: "Fast"}: {Executions: slowSample, Mean: 100 * time.Millisecond},
			{Worker: "a", Step: "Long"}: {Executions: slowSample, Mean: 5 * time.Second},
			{Worker: "a", Step: "Rare"}: {Executions: slowSample - 1, Mean: time.Millisecond},
		},
		commands: []store.SentCommand{
			command("shorter than ten seconds", 0, 9*time.Second), command("fast", 0, 11*time.Second),
			command("usual", 1, 20*time.Second), command("long", 1, 26*time.Second), command("rare", 2, time.Hour),
		},
	}
	s := NewSlow(10*time.Second, f, f, f, func() time.Time { return now }, slog.New(slog.DiscardHandler))
	require.NoError(t, s.round(t.Context()))
	want := []string{"fast", "long"}
	if diff := cmp.Diff(want, f.marked); diff != "" {
		t.Errorf("marked (-want +got):\n%s", diff)
	}
	require.NoError(t, s.round(t.Context()))
	f.commands[1].Dispatch = 2
	require.NoError(t, s.round(t.Context()))
	if diff := cmp.Diff(append(want, "fast"), f.marked); diff != "" {
		t.Errorf("marked after three rounds (-want +got):\n%s", diff)
	}
}

// stuckExecutions is a database that does not answer.
type stuckExecutions struct{ *slowFake }

func (stuckExecutions) StepDurations(ctx context.Context, _ time.Time) (map[store.StepName]store.StepDuration, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestSlow_DatabaseDoesNotAnswer_GivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &slowFake{}
		s := NewSlow(10*time.Second, stuckExecutions{f}, f, f, time.Now, slog.New(slog.DiscardHandler))
		require.ErrorIs(t, s.round(t.Context()), context.DeadlineExceeded)
	})
}
