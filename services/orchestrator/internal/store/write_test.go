package store

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// nasty contains strings that array literals and JSON must escape.
var nasty = []string{
	"", " ", "NULL", "null", `"`, `\`, `\\`, `"\""`, `{`, `}`, `{}`, `{"a",NULL}`, ",", "a,b", "'", "$1", "\t\n\r", "Ωμέγα", "日本語", "😀",
	"\u2028", "%00", `\x00`, "a'; DROP TABLE orchestrator.operations; --",
}

func TestRow_RoundTrip_KeepsEveryField(t *testing.T) {
	b := setup(t)
	r := b.row(1)
	at := func(s int) time.Time { return epoch.Add(time.Duration(s)*time.Second + 123456*time.Microsecond) }
	r.TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	r.Operation.InstanceID = `nasty "{\} NULL` // the platform chooses instance ids
	op := r.Operation
	b.insert(&Change{Row: r})
	// A stage whose memory is lost is repeated after one second, which is 86,400 times a day.
	r.Status, r.Cursor, r.Stage, r.Step, r.StageAttempt, r.StepAttempt, r.Dispatch = event.InProgress, 7, 0, 1, 86_401, 4, 5
	r.FirstTriedAt, r.ExecuteBefore, r.DueAt, r.StartedAt, r.FinishedAt, r.Deadline = at(1), at(2), at(3), at(4), at(5), at(6)
	r.StageStartedAt, r.SentAt, r.UnansweredAt = at(8), at(9), at(11)
	r.StageMemory = true
	r.Tries = map[string]engine.Try{
		`O"ne`: {FirstTriedAt: at(7), Attempts: 2},
		"Two":  {FirstTriedAt: at(7), WaitingSince: at(8), FailingSince: at(9), LastError: &event.Error{Component: nasty[5], Message: nasty[12]}},
	}
	r.Details = json.RawMessage(`{"alpha": {"nasty": "\"\\{}NULL,日本語"}}`)
	r.NotCompleted, r.Completed = nasty, nasty[1:]
	r.Skipped = map[string]string{"One": nasty[5], nasty[12]: "me"}
	r.Condition, r.ConditionStep, r.ConditionSince = engine.NoAnswer, 1, at(10)
	r.Message, r.CancelReason = nasty[10], nasty[22]
	r.Error = &event.Error{Component: nasty[5], Reason: nasty[8], Message: nasty[12]}
	history := []engine.Entry{{
		Cursor: 7, Kind: engine.KindStep, Outcome: event.OutcomeFailed, Stage: 0, Step: 1, StageAttempt: 86_401, StepAttempt: 4,
		WorkerVersion: nasty[4], Message: nasty[11], Error: &event.Error{Message: nasty[10]}, StartedAt: at(8), FinishedAt: at(9),
	}}
	written, err := b.Write(t.Context(), []*Change{{Row: r, History: history, DetailsChanged: true}})
	if _, ok := written[r.Operation.ID]; err != nil || !ok {
		t.Fatalf("written %v, error %v", written, err)
	}
	got := b.load(r.Operation.ID)
	r.Arrived = got.Arrived
	if diff := cmp.Diff(r, got); diff != "" {
		t.Errorf("row (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(op, got.Operation); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	lines, err := b.History(t.Context(), r.Operation.ID)
	require.NoError(t, err)
	want := []engine.Entry{{
		Cursor: 7, Stage: 0, Step: 1, StageAttempt: 86_401, StepAttempt: 4, StartedAt: at(8), FinishedAt: at(9), Kind: engine.KindStep, Outcome: "failed",
		WorkerVersion: nasty[4], Message: nasty[11], Error: &event.Error{Message: nasty[10]},
	}}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

func TestWrite_OtherVersion_IsNotWritten(t *testing.T) {
	b := setup(t)
	mine, others, missing := b.started(1), b.started(2), b.row(3)
	// Another transaction changes the second row first.
	_, err := b.Write(t.Context(), []*Change{b.apply(b.load(others.Operation.ID), engine.Cancel{Reason: "first"}, epoch)})
	require.NoError(t, err)
	changes := []*Change{b.apply(mine, succeeded(mine), epoch), b.apply(others, succeeded(others), epoch), b.apply(missing, engine.Start{}, epoch)}
	written, err := b.Write(t.Context(), changes)
	require.NoError(t, err)
	if diff := cmp.Diff(map[string]int{mine.Operation.ID: 0}, written); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
	if changes[0].Row.Version != 1 || changes[1].Row.Version != 0 {
		t.Errorf("versions are %d and %d, want 1 for the row that was written and 0 for the other", changes[0].Row.Version, changes[1].Row.Version)
	}
	for _, c := range []struct {
		r       *Row
		step    int
		version int
		history int
	}{{mine, 1, 1, 2}, {others, 0, 1, 1}} {
		got := b.load(c.r.Operation.ID)
		lines, err := b.History(t.Context(), c.r.Operation.ID)
		require.NoError(t, err)
		if got.Step != c.step || got.Version != c.version || len(lines) != c.history {
			t.Errorf("%s: step %d, version %d, %d lines of history; want %d, %d, %d",
				c.r.Operation.InstanceID, got.Step, got.Version, len(lines), c.step, c.version, c.history)
		}
	}
	var stray int
	if err := b.db.Get(&stray, `SELECT count(*) FROM orchestrator.history WHERE operation_id = $1`, missing.Operation.ID); err != nil || stray != 0 {
		t.Errorf("%d lines of history of an operation that does not exist, error %v", stray, err)
	}
}

func TestRelease_StaleOperation_KeepsTheInstance(t *testing.T) {
	b := setup(t)
	for _, c := range []struct {
		name    string
		stale   bool
		gone    bool
		running bool
		details string
	}{
		{"when written", false, false, false, `{"alpha": {"id": 1}}`},
		{"when gone", false, true, false, ""},
		{"not when another was first", true, false, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := b.started(int(epoch.Unix()) + len(c.name))
			waiting := b.row(0)
			waiting.Operation.InstanceID = r.Operation.InstanceID
			b.insert(&Change{Row: waiting})
			first := b.apply(r, engine.Result{
				Outcome: event.OutcomeSucceeded, Cursor: r.Cursor, Details: json.RawMessage(`{"id":1}`), StartedAt: epoch, FinishedAt: epoch,
			}, epoch)
			_, err := b.Write(t.Context(), []*Change{first})
			require.NoError(t, err)
			last := b.apply(first.Row, succeeded(first.Row), epoch)
			if last.Row.Status != event.Succeeded {
				t.Fatalf("the operation is %s", last.Row.Status)
			}
			last.Row.UnansweredAt = epoch
			last.Release = &Release{Gone: c.gone}
			if c.stale {
				last.Row.Version--
			}
			written, err := b.Write(t.Context(), []*Change{last})
			require.NoError(t, err)
			if n, ok := written[r.Operation.ID]; ok == c.stale || ok && n != 1 {
				t.Errorf("written %t with %d waiting, want %t with 1", ok, n, !c.stale)
			}
			err = b.InTx(t.Context(), func(tx *Tx) error {
				instances, err := tx.LockInstances(t.Context(), []string{r.Operation.InstanceID})
				i := instances[r.Operation.InstanceID]
				if err == nil && (i.Running != "") != c.running || string(i.Details) != c.details || i.Waiting != 1 {
					t.Errorf("instance is %+v, details %s", i, i.Details)
				}
				if err == nil && !i.UnansweredAt.IsZero() == (c.gone || c.stale) {
					t.Errorf("unanswered at %s", i.UnansweredAt)
				}
				return err
			})
			require.NoError(t, err)
		})
	}
}

func TestWrite_InvalidText_IsCleaned(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""}, {"plain", "plain"}, {"a\x00b", "ab"}, {"\xff", "\uFFFD"}, {"a\xc3\x28b", "a\uFFFD(b"}, {"\x00\xff\x00", "\uFFFD"}, {"日本", "日本"},
	} {
		if got := clean(c.in); got != c.want {
			t.Errorf("clean(%q) is %q, want %q", c.in, got, c.want)
		}
		text, err := json.Marshal(c.in + `\\u0000`)
		require.NoError(t, err)
		var got string
		if err := json.Unmarshal([]byte(cleanJSON(string(text))), &got); err != nil || got != c.want+`\\u0000` {
			t.Errorf("cleanJSON(%s) is %q, %v; want %q", text, got, err, c.want+`\\u0000`)
		}
	}
	b := setup(t)
	r := b.started(1)
	bad := "a\x00b\xffc"
	change := b.apply(r, engine.Cancel{Reason: bad}, epoch)
	change.Row.Message, change.Row.Error = bad, &event.Error{Component: bad, Reason: bad, Message: bad}
	change.Row.Ending = &engine.Ending{Status: event.Failed, Error: event.Error{Message: bad}}
	change.History = []engine.Entry{{
		Cursor: r.Cursor + 1, Kind: engine.KindRetried, Stage: -1, Step: -1, Message: bad, WorkerVersion: bad,
		Error: &event.Error{Message: bad}, StartedAt: epoch, FinishedAt: epoch,
	}}
	_, err := b.Write(t.Context(), []*Change{change})
	require.NoError(t, err)
	const good = "ab\uFFFDc"
	got := b.load(r.Operation.ID)
	if got.Message != good || got.CancelReason != good || got.Error.Message != good || got.Error.Component != good {
		t.Errorf("message %q, cancel reason %q, error %+v", got.Message, got.CancelReason, got.Error)
	}
}

func TestDefinition_Saved_IsFoundByHash(t *testing.T) {
	b := setup(t)
	require.NoError(t, b.SaveDefinition(t.Context(), b.p, epoch.Add(time.Hour)))
	got, err := b.Definition(t.Context(), b.p.Hash())
	if err != nil || got.Hash() != b.p.Hash() || string(got.Canonical()) != string(b.p.Canonical()) {
		t.Errorf("definition %v, error %v", got, err)
	}
	if _, err := b.Definition(t.Context(), "none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("error for a missing definition is %v", err)
	}
}

func TestDropInstances_StillNeeded_IsKept(t *testing.T) {
	b := setup(t)
	running, waiting := b.started(1), b.row(2)
	b.insert(&Change{Row: waiting})
	free := uuid.NewString()
	err := b.InTx(t.Context(), func(tx *Tx) error {
		return tx.SaveInstances(t.Context(), []*Instance{{ID: free, New: true}})
	})
	require.NoError(t, err)
	require.NoError(t, b.DropInstances(t.Context(), []string{free, running.Operation.InstanceID, waiting.Operation.InstanceID}))
	var left []string
	require.NoError(t, b.db.Select(&left, `SELECT instance_id FROM orchestrator.instances ORDER BY 1`))
	if diff := cmp.Diff([]string{"i-1", "i-2"}, left); diff != "" {
		t.Errorf("instances left (-want +got):\n%s", diff)
	}
}
