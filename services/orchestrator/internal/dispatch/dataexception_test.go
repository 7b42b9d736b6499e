package dispatch

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

func TestResult_InvalidDetailsForDatabase_FailsOnlyItsStep(t *testing.T) {
	for _, c := range []struct{ name, details, want string }{
		{"half of a surrogate pair", `{"name":"\ud800"}`, "details"},
		{"the character U+0000", `{"name":"a\u0000b"}`, "details"},
		{"a number without end", `{"n":1e200000}`, "details"},
		{"broken UTF-8", "{\"name\":\"\xff\"}", "details"},
		{"more than fits once stored", string(numbers), "of them from alpha"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := setup(t)
			o := b.orchestrator()
			ids := b.request(o, "i-1", "i-2")
			b.answer(ids[0], b.row(ids[0]).Cursor, func(r *event.StepSucceeded) { r.Details = json.RawMessage(c.details) })
			b.answer(ids[1], b.row(ids[1]).Cursor, nil)
			b.deliver(o, 2)
			bad := b.row(ids[0])
			if bad.Status != event.Failed || bad.Error == nil || bad.Error.Reason != "err_keb_details" || !strings.Contains(bad.Error.Message, c.want) || len(bad.Details) > 0 {
				t.Errorf("the operation is %s with error %+v, want failed with %q", bad.Status, bad.Error, c.want)
			}
			if got := b.row(ids[1]).Step; got != 1 {
				t.Errorf("the other operation is at step %d, want 1", got)
			}
			b.inStream(event.StreamResults, 0)
		})
	}
}

func TestResult_EscapedNULText_IsSaved(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	id := b.request(o, "i-1")[0]
	b.answer(id, b.row(id).AwaitedCursor(), func(r *event.StepSucceeded) { r.Details = json.RawMessage(`{"regexp":"\\u0000"}`) })
	b.deliver(o, 1)
	if got, want := string(b.row(id).Details), `{"alpha": {"regexp": "\\u0000"}}`; got != want {
		t.Errorf("details are %s, want %s", got, want)
	}
}

func TestResult_NoTimes_IsApplied(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	id := b.request(o, "i-1")[0]
	b.answer(id, b.row(id).AwaitedCursor(), func(r *event.StepSucceeded) { r.StartedAt, r.FinishedAt = time.Time{}, time.Time{} })
	b.deliver(o, 1)
	if got := b.row(id).Step; got != 1 {
		t.Fatalf("the operation is at step %d, want 1", got)
	}
	lines, err := b.store.History(t.Context(), id)
	if last := len(lines) - 1; err != nil || !lines[last].StartedAt.Equal(epoch) || !lines[last].FinishedAt.Equal(epoch) {
		t.Errorf("history %+v, error %v; want the time of the result", lines, err)
	}
}

func TestResult_InvalidTimeForDatabase_FailsItsStep(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	id := b.request(o, "i-1")[0]
	b.answer(id, b.row(id).AwaitedCursor(), func(r *event.StepSucceeded) { r.StartedAt = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC) })
	b.deliver(o, 1)
	if got := b.row(id); got.Status != event.Failed || !strings.Contains(got.Error.Message, "timestamp out of range") {
		t.Errorf("the operation is %s with error %+v", got.Status, got.Error)
	}
}
