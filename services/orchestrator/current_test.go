package orchestrator_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

// current asks as a worker which commands are still current.
func (s *system) current(as string, commands ...event.CommandRef) []event.CommandRef {
	s.t.Helper()
	var answer event.CurrentAnswer
	require.NoError(s.t, s.bus.Ask(s.t.Context(), event.AskCurrentAs(as), event.CurrentRequest{Commands: commands}, &answer))
	return answer.Current
}

// cursor returns the cursor of an operation in the database.
func (s *system) cursor(op event.Operation) (cursor int64) {
	s.t.Helper()
	require.NoError(s.t, s.db.Get(&cursor, `SELECT cursor FROM orchestrator.operations WHERE id = $1`, op.ID))
	return cursor
}

func TestCurrent_Worker_LearnsAwaitedCommands(t *testing.T) {
	s := newSystem(t)
	release := make(chan struct{})
	s.script.set("First", gate(release).step)
	s.script.set("Change", hourly)
	s.start()
	out, queued := operation(event.Provision, "i-1", "azure"), operation(event.Update, "i-1", "azure")
	waiting, ended := operation(event.Update, "i-2", "azure"), operation(event.Deprovision, "i-3", "azure")
	s.request(out, queued, waiting, ended)
	s.await(ended, event.Succeeded)
	s.await(queued, event.Pending)
	testkit.Eventually(t, patience, "one step runs and another waits for an hour", func() bool {
		var due bool
		err := s.db.Get(&due, `SELECT due_at IS NOT NULL FROM orchestrator.operations WHERE id = $1`, waiting.ID)
		return err == nil && due && s.script.count("First") == 1
	})
	command := func(op event.Operation, offset int64) event.CommandRef {
		return event.CommandRef{OperationID: op.ID, Cursor: max(1, s.cursor(op)+offset)}
	}
	unknown := event.CommandRef{OperationID: "00000000-0000-4000-8000-000000000000", Cursor: 1}
	all := []event.CommandRef{
		command(out, -1), command(out, 0), command(out, 1), command(queued, 0), command(waiting, -1), command(waiting, 0),
		command(ended, -1), command(ended, 0), unknown,
	}
	if diff := cmp.Diff([]event.CommandRef{command(out, 0)}, s.current("alpha", all...)); diff != "" {
		t.Errorf("for alpha, which has the command (-want +got):\n%s", diff)
	}
	for _, other := range []string{"beta", "orchestrator", "broker"} {
		if got := s.current(other, all...); len(got) > 0 {
			t.Errorf("for %s: %v, want none", other, got)
		}
	}
	// A command with a result is no longer current, although the operation continues.
	was := command(out, 0)
	close(release)
	testkit.Eventually(t, patience, "the step is done", func() bool { return s.cursor(out) > was.Cursor })
	if got := s.current("alpha", was); len(got) > 0 {
		t.Errorf("after the result: %v, want none", got)
	}
	var answer event.CurrentAnswer
	err := s.bus.Ask(t.Context(), event.AskCurrentAs("alpha"), event.CurrentRequest{Commands: make([]event.CommandRef, event.MaxCurrent+1)}, &answer)
	if err == nil || !strings.Contains(err.Error(), "want 1 to 500") {
		t.Errorf("a request with 501 commands: %v", err)
	}
}
