package orchestrator_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit"
)

// A browser that leaves a page while it loads is not a failure.
func TestClient_Disconnects_IsNotAServerError(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.orchestrator()
	for n, c := range []struct{ target, asks string }{
		{"/operations", "o.arrived"}, {"/events?instance_ids=x", "JOIN orchestrator.history"},
	} {
		tx, err := g.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.Exec(`LOCK TABLE orchestrator.operations IN ACCESS EXCLUSIVE MODE`)
		require.NoError(t, err)
		ctx, hangUp := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, g.api.URL+c.target, nil)
		require.NoError(t, err)
		bearer(veraToken)(r)
		done := make(chan error, 1)
		go func() {
			response, err := g.api.Client().Do(r)
			if err == nil {
				_ = response.Body.Close()
			}
			done <- err
		}()
		testkit.Eventually(t, patience, "the request waits for the lock", func() bool { // excludes requests that are sent continuously
			var waiting int
			err := g.db.Get(&waiting, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
AND application_name = 'keb-orchestrator-read' AND wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'`, c.asks)
			return err == nil && waiting > 0
		})
		hangUp()
		if err := <-done; err == nil {
			t.Errorf("%s was answered", c.target)
		}
		testkit.Eventually(t, patience, "the request ends", func() bool {
			return strings.Count(g.logged.String(), "the client disconnected") > n
		})
		require.NoError(t, tx.Rollback())
	}
	if log := g.logged.String(); strings.Contains(log, "question failed") {
		t.Errorf("the log:\n%s", log)
	}
}
