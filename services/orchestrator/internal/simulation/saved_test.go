package simulation_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// patch returns a random patch of saved data: small and large values, removals, and sometimes more names than a history line records.
func patch(rng *rand.Rand) json.RawMessage {
	changes := map[string]any{}
	for _, name := range []string{"a", "b", "c", "d"} {
		switch rng.IntN(6) {
		case 0, 1:
			changes[name] = rng.IntN(3)
		case 2:
			changes[name] = nil
		case 3:
			changes[name] = strings.Repeat("x", 2<<10+rng.IntN(9))
		}
	}
	if rng.IntN(40) == 0 {
		for i := range 200 {
			changes[fmt.Sprintf("member-%d", i)] = strings.Repeat("y", 20+rng.IntN(2))
		}
	}
	raw, err := json.Marshal(changes)
	if err != nil {
		panic(err)
	}
	return raw
}

// TestSaved_LargeAndManyValues_AreRightOrUnknown checks that the data before and after each try is what it was, apart from the members that
// the answer names as unknown, also after tries are folded.
func TestSaved_LargeAndManyValues_AreRightOrUnknown(t *testing.T) {
	p := (&pools{}).set(0, 0)[event.Update]
	unknown, whole := 0, 0
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 7))
		now := epoch
		s := engine.New(event.Operation{ID: "o", Type: event.Update, InstanceID: "i"})
		var history []engine.Entry
		apply := func(e engine.Event) {
			next, out, err := engine.Apply(p, s, e, now)
			require.NoError(t, err)
			s, history = next, append(history, out.History...)
		}
		apply(engine.Start{})
		was := map[int64][2]json.RawMessage{}
		for range 2 + rng.IntN(25) {
			before := s.Details
			apply(engine.Result{
				Cursor: s.AwaitedCursor(), Outcome: event.OutcomeRetry, RetryAfter: 10 * time.Second, Details: patch(rng),
				Worker: event.Worker{Name: "alpha"}, StartedAt: now, FinishedAt: now,
			})
			was[history[len(history)-1].Cursor] = [2]json.RawMessage{before, s.Details}
			now = now.Add(10 * time.Second)
			apply(engine.Due{WorkerAlive: true})
		}
		for _, lines := range [][]engine.Entry{history, engine.FoldHistory(history)} {
			for i := range lines {
				e := &lines[i]
				if e.Outcome != event.OutcomeRetry {
					continue
				}
				before, after, recorded, err := engine.SavedAround(s.Details, lines, i)
				require.NoError(t, err)
				require.True(t, recorded)
				first := e.Cursor
				if e.Folded != nil {
					first = e.Folded.Cursor
				}
				checkSaved(t, lines[i:], before, was[first][0])
				checkSaved(t, lines[i+1:], after, was[e.Cursor][1])
				if unknown += len(before.Unknown); len(before.Unknown) == 0 {
					whole++
				}
			}
		}
	}
	if unknown == 0 || whole == 0 {
		t.Errorf("%d unknown members and %d states without any: the patches show little", unknown, whole)
	}
}

// checkSaved compares saved data that was traced back over later entries with what it was.
func checkSaved(t *testing.T, later []engine.Entry, got engine.SavedData, want json.RawMessage) {
	t.Helper()
	var is, was map[string]map[string]any
	for raw, into := range map[*json.RawMessage]*map[string]map[string]any{&got.Details: &is, &want: &was} {
		if len(*raw) > 0 {
			require.NoError(t, json.Unmarshal(*raw, into))
		}
	}
	if slices.Contains(got.Unknown, "alpha") { // more members than were recorded
		return
	}
	known, right := maps.Clone(is["alpha"]), maps.Clone(was["alpha"])
	for _, name := range got.Unknown {
		member := strings.TrimPrefix(name, "alpha.")
		if !slices.ContainsFunc(later, func(e engine.Entry) bool {
			saved := e.Saved["alpha"]
			return slices.Contains(saved.Members(), member)
		}) {
			t.Errorf("%s is unknown, but no later line changes it", name)
		}
		delete(known, member)
		delete(right, member)
	}
	if len(known)+len(right) > 0 && !reflect.DeepEqual(known, right) {
		t.Errorf("the saved data is traced back to %.300v, want %.300v", known, right)
	}
}
