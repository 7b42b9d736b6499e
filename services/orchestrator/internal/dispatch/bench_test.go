package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// BenchmarkStep measures the work of the dispatcher for one result, without the database and the bus: it applies the result, and creates the
// next command and the facts.
func BenchmarkStep(b *testing.B) {
	set, err := process.Load(processes)
	require.NoError(b, err)
	p := set[event.Update]
	d := &Dispatcher{deps: Deps{Now: time.Now}}
	state, _, err := engine.Apply(p, engine.New(event.Operation{ID: "6f7d1f7e-0000-4000-8000-000000000001", Type: event.Update, InstanceID: "i"}), engine.Start{}, epoch)
	require.NoError(b, err)
	row := &store.Row{State: state}
	require.NoError(b, encodeOnce(row))
	result := engine.Result{Outcome: event.OutcomeSucceeded, Cursor: state.Cursor, StartedAt: epoch, FinishedAt: epoch}
	b.ReportAllocs()
	for b.Loop() {
		w := &work{row: row, process: p, decide: engine.Apply}
		require.NoError(b, w.apply(result, epoch))
		_, err := d.command(w)
		require.NoError(b, err)
		for i := range w.effects.Facts {
			_, err := d.fact(w, &w.effects.Facts[i])
			require.NoError(b, err)
		}
	}
}
