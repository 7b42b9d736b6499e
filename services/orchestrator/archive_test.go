package orchestrator_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestRetention_OldOperation_IsArchivedThenRemoved(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.start()
	old := operation(event.Provision, "i-1", "trial")
	s.request(old)
	s.await(old, event.Succeeded)
	history := s.history(old.ID)
	if len(history) < 5 {
		t.Fatalf("history %v", history)
	}
	shift := func(d string) {
		t.Helper()
		for _, table := range []string{"operations", "archive"} {
			_, err := s.db.Exec(`UPDATE orchestrator.` + table + ` SET finished_at = finished_at - interval '` + d + `' WHERE finished_at IS NOT NULL`)
			require.NoError(t, err)
		}
	}
	shift("91 days")
	s.cfg.ArchiveEvery = 20 * time.Millisecond
	second := s.orchestrator()
	testkit.Eventually(t, patience, "the operation is archived", func() bool { return s.state(old.ID) == "" })

	var shown struct {
		Archived bool
		State    event.OperationState
	}
	s.get("/operations/"+old.ID, &shown)
	if !shown.Archived || shown.State != event.Succeeded {
		t.Errorf("shown as %+v", shown)
	}
	if diff := cmp.Diff(history, s.history(old.ID)); diff != "" {
		t.Errorf("history (-before +after):\n%s", diff)
	}
	var list struct{ TotalCount int }
	s.get("/operations", &list)
	if list.TotalCount != 0 {
		t.Errorf("%d operations are listed", list.TotalCount)
	}
	s.must(http.StatusConflict, http.MethodPost, "/operations/"+old.ID+"/cancel", nil, nil)

	// A restored bus may deliver an old request again. It must not run again, but later requests must.
	require.NoError(t, s.bus.JetStream().DeleteStream(t.Context(), string(event.StreamRequests)))
	require.NoError(t, s.bus.EnsureStreams(t.Context()))
	next := operation(event.Update, "i-1", "trial")
	s.request(old, next)
	s.await(next, event.Succeeded)
	if s.state(old.ID) != "" {
		t.Errorf("the archived operation is %s again", s.state(old.ID))
	}

	shift("2 years")
	testkit.Eventually(t, patience, "the archived operation is removed", func() bool {
		code, _ := s.do(http.MethodGet, "/operations/"+old.ID, nil)
		return code == http.StatusNotFound
	})
	second.stop()
}
