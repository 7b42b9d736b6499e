package dispatch

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
)

// An unsuspension that overtakes its suspension would be cancelled by it, or end without a runtime.
func TestRequests_EarlierOneRedelivered_LaterOneWaits(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	running := b.request(o, "i-1")[0]
	// Another transaction locks the row for a while.
	tx, err := b.db.BeginTxx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.Exec(`SELECT FROM orchestrator.operations WHERE id = $1 FOR UPDATE`, running)
	require.NoError(t, err)
	ids := b.requestAll(o,
		event.Operation{Type: event.Deprovision, InstanceID: "i-1", Temporary: true}, event.Operation{Type: event.Update, InstanceID: "i-1"},
		event.Operation{Type: event.Update, InstanceID: "i-2"})
	arrived := func() []string {
		var order []string
		require.NoError(t, b.db.Select(&order, `SELECT id::text FROM orchestrator.operations ORDER BY arrived`))
		return order
	}
	if diff := cmp.Diff([]string{running, ids[2]}, arrived()); diff != "" {
		t.Errorf("arrived while the row is locked (-want +got):\n%s", diff)
	}
	require.NoError(t, tx.Rollback())
	require.NoError(t, o.Requests(t.Context(), b.take(b.requests, 2)))
	if diff := cmp.Diff([]string{running, ids[2], ids[0], ids[1]}, arrived()); diff != "" {
		t.Errorf("arrived afterwards (-want +got):\n%s", diff)
	}
}
