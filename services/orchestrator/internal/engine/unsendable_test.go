package engine_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

func TestUnsendable_CommandIsOut_FailsTheOperation(t *testing.T) {
	r := started(t, provision)
	r.must(engine.Unsendable{Cursor: r.s.Cursor, Reason: "it is too large"})
	r.wantStatus(event.Failed)
	want := &event.Error{Component: "keb", Reason: "err_keb_too_large", Message: "it is too large"}
	if diff := cmp.Diff(want, r.s.Error); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}

func TestUnsendable_OlderCommand_IsRejected(t *testing.T) {
	r := started(t, provision)
	old := r.s.Cursor
	r.succeed()
	r.reject(engine.ErrNotPossible, engine.Unsendable{Cursor: old, Reason: "it is too large"})
	r.fail()
	r.reject(engine.ErrNotPossible, engine.Unsendable{Cursor: r.s.Cursor, Reason: "it is too large"})
}

func TestUnsendable_FinallyStage_SkipsTheRest(t *testing.T) {
	r := atC(t)
	r.must(engine.Unsendable{Cursor: r.s.Cursor, Reason: "it is too large"})
	r.wantPosition("Restore", 1, 1)
	r.must(engine.Unsendable{Cursor: r.s.Cursor, Reason: "still too large"})
	r.wantStatus(event.Failed)
	if diff := cmp.Diff([]string{"Restore", "Notify"}, r.s.NotCompleted); diff != "" || r.s.Error.Message != "it is too large" {
		t.Errorf("error %+v, not completed (-want +got):\n%s", r.s.Error, diff)
	}
}

// oversizedDetails returns saved data that is too large for a command.
func oversizedDetails() json.RawMessage {
	large := strings.Repeat("x", event.MaxDetails/2)
	return json.RawMessage(`{"alpha":{"id":"a-1","large":"` + large + `"},"beta":{"id":"b-1","larger":"` + large + `yy"}}`)
}

func TestUnsendable_SavedDataTooLarge_KeepsWhatFits(t *testing.T) {
	p := load(t, provision)
	s := newRun(t, p).s
	s, _, err := engine.Apply(p, s, engine.Start{}, epoch)
	require.NoError(t, err)
	s.Details = oversizedDetails() // saved by an earlier release
	s, _, err = engine.Apply(p, s, engine.Unsendable{Cursor: s.Cursor, Reason: "too large"}, epoch)
	require.NoError(t, err)
	checkLargestMemberRemoved(t, s.Details)
	if want := "too large; left out of the saved data: beta.larger"; s.Error.Message != want {
		t.Errorf("message is %q, want %q", s.Error.Message, want)
	}
}

func TestStart_SavedDataTooLarge_KeepsWhatFits(t *testing.T) {
	r := newRun(t, load(t, provision))
	r.must(engine.Start{Details: oversizedDetails()})
	checkLargestMemberRemoved(t, r.s.Details)
}

// checkLargestMemberRemoved checks that only the largest member is missing.
func checkLargestMemberRemoved(t *testing.T, details json.RawMessage) {
	t.Helper()
	var got map[string]map[string]string
	require.NoError(t, json.Unmarshal(details, &got))
	if got["alpha"]["id"] != "a-1" || got["beta"]["id"] != "b-1" || got["alpha"]["large"] == "" || got["beta"]["larger"] != "" {
		t.Errorf("details have %d bytes, want all members except beta.larger", len(details))
	}
}
