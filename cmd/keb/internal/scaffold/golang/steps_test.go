package main

import (
	"context"
	"errors"
	"testing"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
)

// fakeSystem is a System in memory. With err it does nothing and returns it.
type fakeSystem struct {
	records map[string]bool
	creates int
	err     error
}

func (f *fakeSystem) Create(_ context.Context, name string) (string, error) {
	if f.err != nil {
		return "", f.err
	}
	f.creates++
	f.records["record-"+name] = true
	return "record-" + name, nil
}

func (f *fakeSystem) Delete(_ context.Context, id string) error {
	if f.err == nil {
		delete(f.records, id)
	}
	return f.err
}

// world returns a system without records, and its steps.
func world() (system *fakeSystem, create, remove worker.Step) {
	system = &fakeSystem{records: map[string]bool{}}
	all := steps(system)
	return system, all[0], all[1]
}

// run runs a step for an operation, and fails the test if the outcome is another one.
func run(t *testing.T, step worker.Step, op workertest.Operation, want event.Outcome) workertest.Result {
	t.Helper()
	op.Worker = workerName
	result := workertest.Run(t, step, op)
	if result.Outcome != want {
		t.Fatalf("%s: outcome %q, want %q; error %+v", step.Name(), result.Outcome, want, result.Error)
	}
	return result
}

func TestCreate_Repeated_CreatesOneRecord(t *testing.T) {
	t.Parallel()
	system, create, _ := world()
	first := run(t, create, workertest.Operation{}, event.OutcomeSucceeded)
	run(t, create, first.Then(), event.OutcomeSucceeded)
	if system.creates != 1 || len(system.records) != 1 {
		t.Errorf("%d requests created %v", system.creates, system.records)
	}
}

func TestDelete_AfterCreate_LeavesNothing(t *testing.T) {
	t.Parallel()
	system, create, remove := world()
	created := run(t, create, workertest.Operation{}, event.OutcomeSucceeded)
	deleted := run(t, remove, created.Then(), event.OutcomeSucceeded)
	run(t, remove, deleted.Then(), event.OutcomeSkipped)
	if len(system.records) != 0 {
		t.Errorf("these records are left: %v", system.records)
	}
}

func TestSteps_Errors_DecideOutcome(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]event.Outcome{
		errors.New("connection refused"): event.OutcomeRetry,
		ErrRejected:                      event.OutcomeFailed,
	} {
		system, create, remove := world()
		created := run(t, create, workertest.Operation{}, event.OutcomeSucceeded)
		system.err = err
		run(t, create, workertest.Operation{}, want)
		run(t, remove, created.Then(), want)
	}
}
