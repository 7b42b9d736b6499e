package orchestrator_test

import (
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

// The tests in this file are named after defects of the original (docs/contracts/defects.md), by their numbers there.

// Defect 12.
func TestSuccess_Fact_FollowsTheCommit(t *testing.T) {
	s := newSystem(t)
	s.start()
	var mu sync.Mutex
	states := map[string]event.OperationState{}
	sub, err := s.bus.NATS().Subscribe("keb.fact.*.operation-succeeded", func(m *nats.Msg) {
		e, err := bus.Decode(m.Header, m.Data)
		if err != nil {
			return
		}
		told, err := bus.Data[event.OperationSucceeded](e)
		if err != nil {
			return
		}
		var state string
		if err := s.db.Get(&state, `SELECT state FROM orchestrator.operations WHERE id = $1`, told.OperationID); err != nil {
			state = err.Error()
		}
		mu.Lock()
		defer mu.Unlock()
		states[told.OperationID] = event.OperationState(state)
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	const n = 20
	var operations []event.Operation
	for i := range n {
		operations = append(operations, operation(event.Provision, "i-"+string(rune('a'+i)), "azure"))
	}
	s.request(operations...)
	for _, op := range operations {
		s.await(op, event.Succeeded)
	}
	testkit.Eventually(t, patience, "a fact for every success", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(states) == n
	})
	for id, state := range states {
		if state != event.Succeeded {
			t.Errorf("operation %s was reported as succeeded, but was %s", id, state)
		}
	}
}

// Defect 18.
func TestPending_LongWait_UsesNoOperationTime(t *testing.T) {
	s := newSystem(t)
	s.start()
	open := make(gate)
	s.script.set("Change", open.step)
	first, second := operation(event.Update, "busy", "azure"), operation(event.Update, "busy", "azure")
	s.request(first)
	s.await(first, event.InProgress)
	s.request(second)
	s.await(second, event.Pending)
	s.run(operation(event.Provision, "other", "azure"))
	close(open)
	s.await(second, event.Succeeded)
	var times struct {
		Created  time.Time `db:"created_at"`
		Started  time.Time `db:"started_at"`
		Deadline time.Time `db:"deadline"`
	}
	require.NoError(t, s.db.Get(&times, `SELECT created_at, started_at, deadline FROM orchestrator.operations WHERE id = $1`, second.ID))
	if !times.Started.After(times.Created) || !times.Deadline.Equal(times.Started.Add(time.Hour)) {
		t.Errorf("created %s, started %s, deadline %s: the time must run from the start", times.Created, times.Started, times.Deadline)
	}
}

// Defect 15.
func TestRequests_TwoOrchestratorsCollide_NoDelay(t *testing.T) {
	s := newSystem(t)
	s.orchestrator()
	s.orchestrator()
	s.start()
	var operations []event.Operation
	for i := range 60 {
		operations = append(operations, operation(event.Provision, "i-"+string(rune('A'+i)), "azure"))
	}
	s.request(operations...)
	for _, op := range operations {
		s.await(op, event.Succeeded)
	}
	// The original waited a minute after the second conflict. A wait is an additional transition, which increases the cursor.
	var cursors []int
	require.NoError(t, s.db.Select(&cursors, `SELECT DISTINCT cursor FROM orchestrator.operations`))
	undisturbed := len(s.history(operations[0].ID))
	if len(cursors) != 1 || cursors[0] != undisturbed {
		t.Errorf("operations ended with the cursors %v, want %d for all", cursors, undisturbed)
	}
}
