package harness

import (
	"testing"

	"github.com/kyma-project/keb/libs/api/operator"
)

func TestRanAgain_ForbiddenRepetition_IsReported(t *testing.T) {
	t.Parallel()
	stages := []operator.Stage{{Name: "first"}, {Name: "second"}}
	for _, c := range []struct {
		name    string
		history []operator.HistoryLine
		want    int
	}{
		{name: "in order", history: []operator.HistoryLine{{Cursor: 1}, {Cursor: 2, Stage: "first"}, {Cursor: 3, Stage: "second"}, {Cursor: 4}}},
		{name: "the current stage again", history: []operator.HistoryLine{{Cursor: 1, Stage: "first"}, {Cursor: 2, Stage: "first"}, {Cursor: 3, Stage: "second"}}},
		{name: "a finished stage again", want: 1, history: []operator.HistoryLine{{Cursor: 1, Stage: "first"}, {Cursor: 2, Stage: "second"}, {Cursor: 3, Stage: "first"}}},
		{name: "a transition twice", want: 1, history: []operator.HistoryLine{{Cursor: 1, Stage: "first"}, {Cursor: 1, Stage: "first"}}},
		{name: "a stage of another process", want: 1, history: []operator.HistoryLine{{Cursor: 1, Stage: "third"}}},
	} {
		op := Operation{operator.OperationDetail{Stages: stages, History: c.history}}
		if got := op.RanAgain(); len(got) != c.want {
			t.Errorf("%s: %v, want %d problems", c.name, got, c.want)
		}
	}
}
