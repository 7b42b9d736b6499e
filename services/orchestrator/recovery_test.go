package orchestrator_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

// finishedStagesOnce fails the test if a step ran again after its stage had finished. It queries the database, because the orchestrators
// may still have dead connections.
func (s *system) finishedStagesOnce(operations []event.Operation) {
	s.t.Helper()
	for _, op := range operations {
		var stages []int
		require.NoError(s.t, s.db.Select(&stages, `SELECT stage FROM orchestrator.history WHERE operation_id = $1 AND step >= 0 ORDER BY cursor`, op.ID))
		if len(stages) < 6 || !slices.IsSorted(stages) {
			s.t.Errorf("operation %s: its steps ran in the stages %v, want every stage once, and six steps", op.ID, stages)
		}
	}
}

func manyOperations(n int) []event.Operation {
	operations := make([]event.Operation, n)
	for i := range operations {
		operations[i] = operation(event.Provision, fmt.Sprintf("instance-%d", i), "azure")
	}
	return operations
}

// The execution limits are ten minutes. Operations that continue earlier do so because the streams are new.
func TestRecovery_JetStreamStoreLost_ContinuesInSeconds(t *testing.T) {
	s := newSystem(t)
	s.cfg.Processes = withExecution(testProcesses, "10m")
	// A slow machine must neither make workers appear missing nor exceed the time to report what they execute.
	s.cfg.AskWorkersEvery, s.cfg.LossTimeout = 2*time.Second, 5*time.Minute
	s.orchestrator()
	s.orchestrator()
	alpha := s.worker("alpha")
	s.worker("beta")
	// One step is running when the store is lost; it must not be started a second time.
	open := make(gate)
	s.script.set("Poll", func(ctx context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		if op.InstanceID == "held" {
			return open.step(ctx, op)
		}
		return op, 0, nil
	})
	held := operation(event.Provision, "held", "azure")
	s.request(held)
	testkit.Eventually(t, patience, "the blocked step runs", func() bool { return s.script.count("Poll") == 1 })
	// The others wait for an unavailable worker: their commands are on the bus.
	alpha.stop()
	operations := manyOperations(40)
	s.request(operations...)
	for _, op := range operations {
		s.await(op, event.InProgress)
	}
	s.nats.RestartEmpty(t)
	lost := time.Now()
	s.worker("alpha")
	s.worker("beta") // a second replica, which could receive the blocked step
	for _, op := range operations {
		testkit.Eventually(t, time.Until(lost.Add(2*time.Minute)), "an operation continues", func() bool { return s.state(op.ID) == event.Succeeded })
	}
	t.Logf("%d operations succeeded %s after the loss", len(operations), time.Since(lost).Round(time.Millisecond))
	if n := s.script.countOf(held.ID, "Poll"); n != 1 {
		t.Errorf("the running step was started %d times, want once", n)
	}
	close(open)
	s.await(held, event.Succeeded)
	s.finishedStagesOnce(append(operations, held))
	if n := s.script.countOf(held.ID, "Poll"); n != 1 {
		t.Errorf("the running step was started %d times in the end, want once", n)
	}
}

func TestOrchestrators_Several_ShareTheWork(t *testing.T) {
	s := newSystem(t)
	s.start()
	s.orchestrator()
	s.orchestrator()
	operations := manyOperations(100)
	s.script.set("Second", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		if op.StepAttempt < 3 {
			return op, 20 * time.Millisecond, nil
		}
		return op, 0, nil
	})
	s.request(operations...)
	for _, op := range operations {
		s.await(op, event.Succeeded)
	}
	s.finishedStagesOnce(operations)
	for _, op := range operations {
		var cursors []string
		require.NoError(t, s.db.Select(&cursors, `SELECT cursor::text FROM orchestrator.history WHERE operation_id = $1`, op.ID))
		if twice := repeats(cursors); len(twice) > 0 {
			t.Errorf("operation %s: cursors used twice: %v", op.ID, twice)
		}
	}
}

func TestRecovery_StageMemoryLost_StageIsRepeated(t *testing.T) {
	s := newSystem(t)
	s.start()
	s.script.set("First", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		op.Remember("token", []byte("secret"))
		return op, 0, nil
	})
	open := make(gate)
	s.script.set("Second", func(ctx context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		if _, _, err := open.step(ctx, op); err != nil {
			return op, 0, err
		}
		if _, err := op.Recall(ctx, "token"); err != nil {
			return op, 0, err
		}
		return op, 0, nil
	})
	op := operation(event.Provision, "i-1", "azure")
	s.request(op)
	testkit.Eventually(t, patience, "the second step runs", func() bool { return s.script.count("Second") > 0 })
	s.nats.Restart(t) // streams remain, the stage memory is lost
	close(open)
	s.await(op, event.Succeeded)
	lines := s.history(op.ID)
	if !slices.Contains(lines, "Second stage lost") {
		t.Errorf("history: %v", lines)
	}
	if n := s.script.count("First"); n != 2 {
		t.Errorf("First ran %d times, want twice", n)
	}
}
