package orchestrator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
)

// addHistory appends rows of an operation that has ended.
func (s *system) addHistory(id, kind, stage string, rows int) {
	s.t.Helper()
	_, err := s.db.Exec(`
INSERT INTO orchestrator.history (operation_id, cursor, stage, step, stage_attempt, step_attempt, started_at, finished_at, kind, message)
SELECT $1::uuid, m.most + n, $3::int, $3::int, n, n, now(), now(), $2, 'message ' || n % 3
FROM (SELECT max(cursor) AS most FROM orchestrator.history WHERE operation_id = $1) AS m, generate_series(1, $4) AS n`, id, kind, stage, rows)
	require.NoError(s.t, err)
}

func TestHistory_Pages_LeaveNothingOut(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.start()
	op := operation(event.Provision, "i-1", "trial")
	s.request(op)
	s.await(op, event.Succeeded)
	before := len(s.history(op.ID))
	s.addHistory(op.ID, "retried by operator", "-1", 2600)

	var shown operator.OperationDetail
	s.get("/operations/"+op.ID, &shown)
	if shown.HistoryCount != before+2600 || len(shown.History) != 500 || shown.Stages[0].Steps[0].State != operator.StateSucceeded {
		t.Errorf("%d of %d lines, want 500 of %d; the first step is %s", len(shown.History), shown.HistoryCount, before+2600, shown.Stages[0].Steps[0].State)
	}
	cursor, lines, pages := int64(0), 0, 0
	for after := int64(0); ; pages++ {
		var page operator.HistoryPage
		s.get(fmt.Sprintf("/operations/%s/history?page_size=1000&after=%d", op.ID, after), &page)
		for _, l := range page.Data {
			if l.Cursor <= cursor {
				t.Fatalf("cursor %d after %d", l.Cursor, cursor)
			}
			cursor = l.Cursor
		}
		lines += page.Count
		if after = page.NextAfter; after == 0 {
			break
		}
	}
	if lines != before+2600 || pages != 2 {
		t.Errorf("%d lines on %d pages, want %d on 3", lines, pages+1, before+2600)
	}
	client, err := operator.New(s.api.URL, "")
	require.NoError(t, err)
	all, err := client.History(t.Context(), op.ID)
	require.NoError(t, err)
	if len(all) != before+2600 {
		t.Errorf("the client has %d lines, want %d", len(all), before+2600)
	}
}

func TestHistory_LongLoop_IsFewLines(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.start()
	op := operation(event.Provision, "i-1", "trial")
	s.request(op)
	s.await(op, event.Succeeded)
	s.addHistory(op.ID, "retried by operator", "-1", 1)
	s.addHistory(op.ID, "retry", "0", 5000)
	var shown operator.OperationDetail
	begun := time.Now()
	s.get("/operations/"+op.ID, &shown)
	t.Logf("%d lines in %s", shown.HistoryCount, time.Since(begun))
	tries := 0
	for _, l := range shown.History {
		if l.Outcome == "retry" {
			tries += l.Tries
		}
	}
	last := shown.History[len(shown.History)-1]
	if tries != 5000 || shown.HistoryCount > 100 || !last.Similar || last.First == nil {
		t.Errorf("%d tries in %d lines, the last one %+v", tries, shown.HistoryCount, last)
	}
	if got := shown.Stages[0].Steps[0].Attempts; got != 5001 {
		t.Errorf("the step has %d attempts, want one and those of the loop", got)
	}
	var again operator.OperationDetail
	s.get("/operations/"+op.ID, &again)
	if diff := cmp.Diff(shown.History, again.History); diff != "" {
		t.Errorf("history (-first +second):\n%s", diff)
	}
}
