package dispatch

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

func TestAct_NextOperationCannotStart_Succeeds(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	first, next := b.request(o, "i-1")[0], b.request(o, "i-1")[0]
	for _, step := range []string{"One", "Two"} {
		if step == "Two" {
			o.bus.set(commandsOnly, false) // rejects the command of the next operation
		}
		if err := o.Act(t.Context(), first, engine.SkipStep{Step: step, By: "me"}); err != nil {
			t.Errorf("skip %s: %v", step, err)
		}
	}
	if got := b.row(first).Status; got != event.Succeeded {
		t.Errorf("the operation is %s", got)
	}
	if got := b.row(next); got.Status != event.InProgress || !got.InFlight() {
		t.Errorf("the next operation is %s", got.Status)
	}
}

func TestAct_UnknownOperation_ReturnsNotFound(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	for _, id := range []string{"", "nonsense", uuid.NewString()} {
		if err := o.Act(t.Context(), id, engine.Cancel{Reason: "me"}); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("operation %q: error is %v, want not found", id, err)
		}
	}
	id := b.request(o, "i-1")[0]
	before := b.row(id).Version
	if err := o.Act(t.Context(), id, engine.SkipStep{Step: "Two", By: "me"}); !errors.Is(err, engine.ErrNotPossible) {
		t.Errorf("skip of another step: %v", err)
	}
	if got := b.row(id).Version; got != before {
		t.Errorf("a rejected action has changed the row to version %d", got)
	}
}

// Another transaction may create the row of an instance at the same time.
func TestAct_InstanceCreatedMeanwhile_IsRetried(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	id := b.request(o, "i-1")[0]
	b.exec(`DELETE FROM orchestrator.instances`)
	rounds := 0
	o.deps.Definitions = hookedDefinitions{Definitions: o.deps.Definitions, do: func() {
		if rounds++; rounds == 1 {
			b.exec(`INSERT INTO orchestrator.instances (instance_id, running) VALUES ('i-1', $1)`, id)
		}
	}}
	if err := o.Act(t.Context(), id, engine.SkipStep{Step: "One", By: "me"}); err != nil {
		t.Errorf("error is %v, want none", err)
	}
	if row := b.row(id); row.Step != 1 || rounds != 2 {
		t.Errorf("the operation is at step %d after %d rounds, want 1 after 2", row.Step, rounds)
	}
	b.published(id, b.row(id).Cursor, 1)
}

// hookedStore calls loaded after its first read of operations.
type hookedStore struct {
	Store
	loaded func()
}

func (s *hookedStore) Load(ctx context.Context, ids []string) (map[string]*store.Row, error) {
	found, err := s.Store.Load(ctx, ids)
	if s.loaded != nil {
		s.loaded()
		s.loaded = nil
	}
	return found, err
}

func TestAct_OperationAcceptedMeanwhile_IsRetried(t *testing.T) {
	b := setup(t)
	o, other := b.orchestrator(), b.orchestrator()
	b.busy("i-1")
	id := b.publishRequests(event.Operation{Type: event.Update, InstanceID: "i-1"})[0]
	request := b.take(b.requests, 1)
	o.deps.Store = &hookedStore{Store: o.deps.Store, loaded: func() { require.NoError(t, other.Requests(t.Context(), request)) }}
	require.NoError(t, o.Act(t.Context(), id, engine.Cancel{Reason: "me"}))
	b.states(map[string]event.OperationState{id: event.Cancelled})
}

// countingStore calls after with the number of transactions that have ended.
type countingStore struct {
	Store
	ended int
	after func(ended int)
}

func (s *countingStore) InTx(ctx context.Context, f func(tx Tx) error) error {
	err := s.Store.InTx(ctx, f)
	s.ended++
	s.after(s.ended)
	return err
}

// A transition of the operation holds its row for as long as a commit takes.
func TestAct_RowIsLocked_WaitsForTheTransaction(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	id := b.request(o, "i-1")[0]
	tx, err := b.db.BeginTxx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.Exec(`SELECT FROM orchestrator.operations WHERE id = $1 FOR UPDATE`, id)
	require.NoError(t, err)
	o.deps.Store = &countingStore{Store: o.deps.Store, after: func(ended int) {
		if ended == conflictAttempts-1 {
			require.NoError(t, tx.Rollback())
		}
	}}
	require.NoError(t, o.Act(t.Context(), id, engine.Cancel{Reason: "me"}))
}
