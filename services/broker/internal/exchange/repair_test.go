package exchange_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/broker/internal/exchange"
	"github.com/kyma-project/keb/services/broker/internal/instance"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// fakeLedger records the changes of a repair.
type fakeLedger struct {
	silent []string
	// refuses is an operation whose state the database rejects.
	refuses                     string
	applied, heard, unpublished []string
}

func (f *fakeLedger) Apply(_ context.Context, changes []instance.Change, _ time.Time) error {
	for _, c := range changes {
		if c.OperationID == f.refuses {
			return fmt.Errorf("apply changes: %w", store.ErrRefused)
		}
	}
	for _, c := range changes {
		f.applied = append(f.applied, c.OperationID)
	}
	return nil
}

func (f *fakeLedger) Silent(context.Context, time.Time, int64, int) ([]string, int64, error) {
	return f.silent, 0, nil
}

func (f *fakeLedger) Heard(_ context.Context, ids []string, _ time.Time) error {
	f.heard = append(f.heard, ids...)
	return nil
}

func (f *fakeLedger) Unpublish(_ context.Context, ids []string, _ time.Time) error {
	f.unpublished = append(f.unpublished, ids...)
	return nil
}

func (f *fakeLedger) WithoutDetails(context.Context, string, int) ([]string, string, error) {
	return nil, "", nil
}

// fakeOrchestrator has operations, and a limit per answer.
type fakeOrchestrator struct {
	known []string
	fit   int
	// stuck makes it return no operations, as if none fitted into an answer.
	stuck bool
	asked [][]string
}

func (f *fakeOrchestrator) Ask(_ context.Context, _ string, request, answer any) error {
	ids := request.(event.OperationsRequest).IDs
	f.asked = append(f.asked, ids)
	a := answer.(*event.OperationsAnswer)
	for _, id := range ids {
		switch {
		case !slices.Contains(f.known, id):
		case f.stuck || len(a.Operations) == f.fit:
			a.Left = append(a.Left, id)
		default:
			a.Operations = append(a.Operations, event.OperationStatus{OperationID: id, State: event.InProgress, Cursor: 1})
		}
	}
	return nil
}

func repair(f *fakeLedger, o *fakeOrchestrator) error {
	return exchange.NewRepair(exchange.RepairConfig{Silence: time.Minute}, f, o, slog.New(slog.DiscardHandler), time.Now).Once(context.Background())
}

func TestRepair_AnswerInParts_ReachesEveryOperation(t *testing.T) {
	t.Parallel()
	f := &fakeLedger{silent: []string{"a", "b", "lost", "c", "d", "e"}}
	o := &fakeOrchestrator{known: []string{"a", "b", "c", "d", "e"}, fit: 2}
	require.NoError(t, repair(f, o))
	want := [][]string{f.silent, {"c", "d", "e"}, {"e"}}
	if diff := cmp.Diff(want, o.asked); diff != "" {
		t.Errorf("questions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a", "b", "c", "d", "e"}, f.applied); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"lost"}, f.unpublished); diff != "" {
		t.Errorf("published again (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(f.silent, f.heard); diff != "" {
		t.Errorf("heard of (-want +got):\n%s", diff)
	}
}

func TestRepair_AnswerWithoutProgress_IsError(t *testing.T) {
	t.Parallel()
	f := &fakeLedger{silent: []string{"a"}}
	if err := repair(f, &fakeOrchestrator{known: []string{"a"}, stuck: true}); err == nil || len(f.heard) > 0 {
		t.Errorf("error %v, heard of %v; want an error and nothing", err, f.heard)
	}
}

func TestRepair_RejectedState_DoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	f := &fakeLedger{silent: []string{"a", "b", "c"}, refuses: "b"}
	require.NoError(t, repair(f, &fakeOrchestrator{known: f.silent, fit: 10}))
	if diff := cmp.Diff([]string{"a", "c"}, f.applied); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(f.silent, f.heard); diff != "" {
		t.Errorf("heard of (-want +got):\n%s", diff)
	}
}
