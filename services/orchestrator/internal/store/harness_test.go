package store

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

var epoch = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// bundle is a store with its own database.
type bundle struct {
	*Store
	t  testing.TB
	db *sqlx.DB
	p  *process.Process
}

func setup(t testing.TB) *bundle {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.Database(t, Migrate), MaxOpen: 4})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	s, err := New(t.Context(), db, db)
	require.NoError(t, err)
	set, err := process.Load(fstest.MapFS{"update.yaml": {Data: []byte(`
operation: update
timeout: 1h
stages:
  - name: change
    steps:
      - {name: One, worker: alpha}
      - {name: Two, worker: alpha}
`)}})
	require.NoError(t, err)
	b := &bundle{Store: s, t: t, db: db, p: set[event.Update]}
	require.NoError(t, s.SaveDefinition(t.Context(), b.p, epoch))
	return b
}

// row returns a pending operation on its own instance.
func (b *bundle) row(n int) *Row {
	return &Row{
		State: engine.New(event.Operation{
			ID: uuid.Must(uuid.NewV7()).String(), Type: event.Update, InstanceID: fmt.Sprintf("i-%d", n),
			Plan: event.Plan{ID: "azure", Name: "azure"}, Parameters: json.RawMessage(`{"a": 1}`),
		}),
		Definition: b.p.Hash(), CreatedAt: epoch,
	}
}

// insert stores rows, with instances.
func (b *bundle) insert(changes ...*Change) {
	b.t.Helper()
	err := b.InTx(b.t.Context(), func(tx *Tx) error {
		for _, c := range changes {
			instances, err := tx.LockInstances(b.t.Context(), []string{c.Row.Operation.InstanceID})
			if err != nil {
				return err
			}
			i := instances[c.Row.Operation.InstanceID]
			switch c.Row.Status {
			case event.Pending:
				i.Waiting++
			case event.InProgress:
				i.Running = c.Row.Operation.ID
			}
			if err := tx.SaveInstances(b.t.Context(), []*Instance{i}); err != nil {
				return err
			}
		}
		return tx.Insert(b.t.Context(), changes)
	})
	require.NoError(b.t, err)
}

// apply applies an event with the engine, without writing the row.
func (b *bundle) apply(r *Row, e engine.Event, now time.Time) *Change {
	b.t.Helper()
	state, effects, err := engine.Apply(b.p, r.State, e, now)
	require.NoError(b.t, err)
	next := *r
	next.State = state
	return &Change{Row: &next, History: effects.History, DetailsChanged: string(state.Details) != string(r.Details)}
}

// started stores an operation whose first command is in flight.
func (b *bundle) started(n int) *Row {
	b.t.Helper()
	c := b.apply(b.row(n), engine.Start{}, epoch)
	b.insert(c)
	return c.Row
}

func (b *bundle) load(id string) *Row {
	b.t.Helper()
	found, err := b.Load(b.t.Context(), []string{id})
	require.NoError(b.t, err)
	if found[id] == nil {
		b.t.Fatalf("operation %s does not exist", id)
	}
	return found[id]
}

func succeeded(r *Row) engine.Result {
	return engine.Result{Outcome: event.OutcomeSucceeded, Cursor: r.Cursor, StartedAt: epoch, FinishedAt: epoch}
}
