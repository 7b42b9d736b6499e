package engine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// around returns the saved data before and after the newest history entry of a step, in one line.
func (r *run) around(history []engine.Entry, i int) (before, after engine.SavedData) {
	r.t.Helper()
	before, after, recorded, err := engine.SavedAround(r.s.Details, history, i)
	require.NoError(r.t, err)
	require.True(r.t, recorded)
	return before, after
}

func TestSavedAround_Tries_ShowTheirData(t *testing.T) {
	r := newRun(t, load(t, provision))
	r.must(engine.Start{Details: json.RawMessage(`{"alpha":{"id":1,"old":"x"},"other":{"a":1}}`)})
	r.result(engine.Result{Outcome: event.OutcomeRetry, Details: json.RawMessage(`{"id":2,"old":null,"new":{"b":[1]}}`)})
	r.sleep(10 * time.Second)
	r.result(engine.Result{Outcome: event.OutcomeRetry, Details: json.RawMessage(`{"id":2,"new":{"b": [1]}}`)})
	if last := r.history[len(r.history)-1]; last.Saved != nil {
		t.Errorf("a patch that changes nothing is recorded as %v", last.Saved)
	}
	i := slices.IndexFunc(r.history, func(e engine.Entry) bool { return e.Outcome == event.OutcomeRetry })
	before, after := r.around(r.history, i)
	require.JSONEq(t, `{"alpha":{"id":1,"old":"x"},"other":{"a":1}}`, string(before.Details))
	require.JSONEq(t, `{"alpha":{"id":2,"new":{"b":[1]}},"other":{"a":1}}`, string(after.Details))
}

func TestSavedAround_LargeValue_IsUnknown(t *testing.T) {
	r := newRun(t, load(t, provision))
	large := strings.Repeat("x", 4<<10)
	r.must(engine.Start{Details: json.RawMessage(`{"alpha":{"id":1,"large":"` + large + `"}}`)})
	r.result(engine.Result{Outcome: event.OutcomeRetry, Details: json.RawMessage(`{"id":2,"large":"y"}`)})
	before, after := r.around(r.history, len(r.history)-1)
	require.JSONEq(t, `{"alpha":{"id":1}}`, string(before.Details))
	require.Equal(t, []string{"alpha.large"}, before.Unknown)
	require.JSONEq(t, `{"alpha":{"id":2,"large":"y"}}`, string(after.Details))
	require.Empty(t, after.Unknown)
}

func TestSavedAround_ManyMembers_AreBounded(t *testing.T) {
	r := newRun(t, load(t, provision))
	patch := map[string]int{}
	for i := range 5000 {
		patch[fmt.Sprintf("member-%d", i)] = i
	}
	many, err := json.Marshal(patch)
	require.NoError(t, err)
	r.must(engine.Start{})
	r.result(engine.Result{Outcome: event.OutcomeRetry, Details: many})
	before, _ := r.around(r.history, len(r.history)-1)
	require.Contains(t, before.Unknown, "alpha")
	encoded, err := json.Marshal(r.history[len(r.history)-1].Saved)
	require.NoError(t, err)
	require.Less(t, len(encoded), 8<<10)
}

// An operation that started with an earlier release has no record of its changes.
func TestSavedAround_EarlierRelease_IsNotRecorded(t *testing.T) {
	r := newRun(t, load(t, provision))
	r.must(engine.Start{})
	r.result(engine.Result{Outcome: event.OutcomeRetry, Details: json.RawMessage(`{"id":2}`)})
	history := slices.Clone(r.history)
	for i := range history {
		history[i].Saved = nil
	}
	_, _, recorded, err := engine.SavedAround(r.s.Details, history, len(history)-1)
	require.NoError(t, err)
	require.False(t, recorded)
}
