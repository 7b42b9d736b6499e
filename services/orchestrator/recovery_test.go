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

func TestRecovery_OrchestratorReplaced_OperationsContinue(t *testing.T) {
	s := newSystem(t)
	o := s.orchestrator()
	s.worker("alpha")
	s.worker("beta")
	operations := manyOperations(50)
	s.request(operations...)
	for range 3 {
		testkit.Eventually(t, patience, "some steps run", func() bool { return s.script.count("First") > 0 })
		o.stop()
		o = s.orchestrator()
	}
	for _, op := range operations {
		s.await(op, event.Succeeded)
	}
	s.finishedStagesOnce(operations)
}

func TestRecovery_JetStreamStoreLost_OperationsFinish(t *testing.T) {
	s := newSystem(t)
	s.cfg.Processes = withExecution(testProcesses, "2s")
	s.start()
	// The first steps are blocked, so that commands, results and requests are on the bus when its store is lost.
	open := make(gate)
	s.script.set("First", open.step)
	operations := manyOperations(40)
	s.request(operations...)
	for _, op := range operations {
		s.await(op, event.InProgress)
	}
	s.nats.RestartEmpty(t)
	close(open)
	for _, op := range operations {
		s.await(op, event.Succeeded)
	}
	s.finishedStagesOnce(operations)
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

// Only the test advances the clock of the orchestrators.
func TestRecovery_Restart_KeepsTheRetryBudget(t *testing.T) {
	s := newSystem(t)
	clock := testkit.NewClock(time.Now().Add(time.Minute))
	s.now = clock.Now
	o := s.start()
	s.script.set("Optional", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		return worker.Retry(op, 100*time.Millisecond, fmt.Errorf("ext is down"))
	})
	op := operation(event.Provision, "i-1", "azure")
	s.request(op)
	tries := 0
	retried := func() {
		t.Helper()
		tries++
		testkit.Eventually(t, patience, fmt.Sprintf("try %d ends with a retry", tries), func() (ok bool) {
			if err := s.db.Get(&ok, `
SELECT COALESCE((SELECT step_attempt = $2 AND due_at IS NOT NULL FROM orchestrator.operations WHERE id = $1), false)`, op.ID, tries); err != nil {
				t.Fatal(err)
			}
			return ok
		})
	}
	retried()
	clock.Advance(900 * time.Millisecond)
	retried()
	o.stop()
	s.orchestrator()
	clock.Advance(100 * time.Millisecond) // the budget of a second is exhausted, and the last try is due
	s.await(op, event.Succeeded)
	if n := s.script.count("Optional"); n != tries+1 {
		t.Errorf("the step was tried %d times, want one try at the end of its budget after the %d before", n, tries)
	}
	if lines := s.history(op.ID); !slices.Contains(lines, "Optional not completed") {
		t.Errorf("history: %v", lines)
	}
}

func TestRecovery_DefinitionChanged_OperationKeepsItsOwn(t *testing.T) {
	s := newSystem(t)
	o := s.start()
	open := make(gate)
	s.script.set("First", open.step)
	op := operation(event.Provision, "i-1", "azure")
	s.request(op)
	s.await(op, event.InProgress)
	o.stop()
	changed := withExecution(testProcesses, "1m")
	changed["provision.yaml"].Data = []byte(`
operation: provision
stages:
  - name: only
    steps: [{name: Last, worker: beta}]
`)
	s.cfg.Processes = changed
	s.orchestrator()
	close(open)
	later := operation(event.Provision, "i-2", "azure")
	s.request(later)
	s.await(op, event.Succeeded)
	s.await(later, event.Succeeded)
	if n := s.script.count("Second"); n != 1 {
		t.Errorf("Second ran %d times, want once: in the operation that started before the change", n)
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
