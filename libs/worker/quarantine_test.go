package worker_test

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/worker"
)

// dyingWorker is the variable with the address of the bus that makes the test program run the worker alone.
const dyingWorker = "KEB_TEST_DYING_WORKER"

const deadly = 3

// runDyingWorker runs a worker whose step Fatal ends the process.
func runDyingWorker(url string) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	b, err := bus.Connect(context.Background(), bus.Config{URL: url, Name: "dying"}, bus.Deps{})
	must(err)
	keys, err := seal.ParseKeyring(oneKey)
	must(err)
	w, err := worker.New(worker.Config{Name: workerName, Version: "1"}, worker.Deps{Bus: b, StageMemory: stagemem.New(b.JetStream(), keys)},
		named("Fatal", func(context.Context, operation) (operation, time.Duration, error) {
			os.Exit(deadly) //nolint:revive // the compiler wants a statement after it
			panic("unreachable")
		}),
		named("Innocent", func(ctx context.Context, op operation) (operation, time.Duration, error) {
			select { // long enough to die with the other command
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
			return op, 0, nil
		}))
	must(err)
	worker.SetAckWait(w, 2*time.Second)
	must(w.Run(context.Background()))
}

func TestQuarantine_CommandEndsItsProcessThreeTimes_IsNotExecutedAgain(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	fatal := command("Fatal")
	innocents := []event.StepExecute{command("Innocent"), command("Innocent")}
	o.send(append(innocents, fatal)...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	died := make(chan int, 10)
	processes := make(chan struct{})
	go func() {
		defer close(processes)
		for ctx.Err() == nil {
			process := exec.CommandContext(ctx, os.Args[0])
			process.Env = append(os.Environ(), dyingWorker+"="+o.nats.URL())
			process.Stderr = os.Stderr
			_ = process.Run()
			died <- process.ProcessState.ExitCode()
		}
	}()
	results := map[string]result{}
	for range 3 {
		r := o.next()
		results[r.OperationID] = r
	}
	for _, c := range innocents {
		if r := results[c.Operation.ID]; r.Type != event.TypeStepSucceeded {
			t.Errorf("the innocent command has the result %s %+v", r.Type, r.Error)
		}
	}
	if r := results[fatal.Operation.ID]; r.Type != event.TypeStepRetry || r.Error == nil || r.Error.Reason != worker.ReasonQuarantined || r.RetryAfter < 60 {
		t.Errorf("the command has the result %s %+v, want %s", r.Type, r.Error, worker.ReasonQuarantined)
	}
	o.settled()
	if len(died) != 3 {
		t.Errorf("the process died %d times, want 3", len(died))
	}
	cancel()
	<-processes
	for range 3 {
		if code := <-died; code != deadly {
			t.Errorf("the process ended with code %d", code)
		}
	}
}

func TestQuarantine_CommandsGivenBackByStoppingWorkers_NeverCount(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	began := make(chan struct{}, 10)
	stubborn := named("Slow", func(ctx context.Context, op operation) (operation, time.Duration, error) {
		began <- struct{}{}
		<-ctx.Done()
		return op, 0, ctx.Err()
	})
	o.send(command("Slow"))
	stops := []setting{config(func(c *worker.Config) { c.DrainTimeout = time.Millisecond }), ackWait(never)}
	for range 5 {
		r := o.start([]worker.Step{stubborn}, stops...)
		receive(t, "the step begins", began)
		require.NoError(t, r.stop())
	}
	o.start([]worker.Step{noop("Slow")}, stops...)
	if r := o.next(); r.Type != event.TypeStepSucceeded {
		t.Errorf("the result is %s %+v", r.Type, r.Error)
	}
}
