package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

const workerName = "my-worker" // as in overlay/my-worker.yaml

// System is what the steps call.
type System interface {
	// Create returns the id of the record with the name, and creates it if it does not exist.
	Create(ctx context.Context, name string) (id string, err error)
	// Delete deletes a record. It succeeds if the record does not exist.
	Delete(ctx context.Context, id string) error
}

// ErrRejected is the error of a request that cannot succeed, however often it is repeated. Every other error is temporary.
var ErrRejected = errors.New("the request was rejected")

// details are what the worker saves about a runtime, in the clear: never a secret. Null removes a member.
type details struct {
	Record *string `json:"record"`
}

func steps(system System) []worker.Step {
	return []worker.Step{
		worker.NewStep("My_Worker_Create", workerName, create(system), worker.Description{
			Summary: "Creates the record of the runtime.", Details: []string{"record"},
		}),
		worker.NewStep("My_Worker_Delete", workerName, remove(system), worker.Description{
			Summary: "Deletes the record of the runtime.", Details: []string{"record"},
		}),
	}
}

// create can run more than once for one operation: it looks for what an earlier run has saved, and names the record after the instance.
func create(system System) worker.StepFunc {
	return func(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
		var saved details
		if err := op.Details(workerName, &saved); err != nil {
			return op, 0, err
		}
		if saved.Record != nil {
			return op, 0, nil
		}
		id, err := system.Create(ctx, op.InstanceID)
		if err != nil {
			return failure(op, "create the record", err)
		}
		if err := op.SaveDetails(details{Record: &id}); err != nil {
			return op, 0, err
		}
		log.Info("record created", "record", id)
		return op, 0, nil
	}
}

// remove deletes what create has saved in an earlier operation of the same instance.
func remove(system System) worker.StepFunc {
	return func(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
		var saved details
		if err := op.Details(workerName, &saved); err != nil {
			return op, 0, err
		}
		if saved.Record == nil {
			return worker.Skip(op, "there is no record")
		}
		if err := system.Delete(ctx, *saved.Record); err != nil {
			return failure(op, "delete the record", err)
		}
		if err := op.SaveDetails(details{}); err != nil {
			return op, 0, err
		}
		log.Info("record deleted", "record", *saved.Record)
		return op, 0, nil
	}
}

// failure fails the step after a rejection, and lets it run again after retry.every of the overlay otherwise.
func failure(op worker.Operation, attempt string, err error) (worker.Operation, time.Duration, error) {
	e := &worker.Error{Component: workerName, Message: attempt, Err: err}
	if errors.Is(err, ErrRejected) {
		e.Reason = "err_rejected"
		return worker.Fail(op, e)
	}
	return worker.Retry(op, 0, e)
}
