package engine_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
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

// Random patches: the data before and after each try are those that were, also after tries are folded.
func TestSavedAround_RandomPatches_AreUndone(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		r := newRun(t, load(t, provision))
		r.must(engine.Start{Details: json.RawMessage(`{"alpha":{"a":0},"beta":{"a":0}}`)})
		data := map[int64][2]string{}
		for range 1 + random.IntN(8) {
			patch := map[string]any{}
			for _, name := range []string{"a", "b", "c"} {
				if value := random.IntN(5); value < 3 {
					patch[name] = value
				} else if value == 3 {
					patch[name] = nil
				}
			}
			raw, err := json.Marshal(patch)
			require.NoError(t, err)
			before := string(r.s.Details)
			r.result(engine.Result{Outcome: event.OutcomeRetry, Details: raw, Message: fmt.Sprint(random.IntN(2))})
			data[r.history[len(r.history)-1].Cursor] = [2]string{before, string(r.s.Details)}
			r.sleep(10 * time.Second)
		}
		for _, history := range [][]engine.Entry{r.history, engine.FoldHistory(r.history)} {
			for i := range history {
				e := &history[i]
				if e.Outcome != event.OutcomeRetry {
					continue
				}
				before, after := r.around(history, i)
				first := e.Cursor
				if e.Folded != nil {
					first = e.Folded.Cursor
				}
				requireDetails(t, data[first][0], before)
				requireDetails(t, data[e.Cursor][1], after)
			}
		}
	}
}

func requireDetails(t *testing.T, want string, got engine.SavedData) {
	t.Helper()
	if want == "" {
		require.Empty(t, got.Details)
		return
	}
	require.JSONEq(t, want, string(got.Details))
}
