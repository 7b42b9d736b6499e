// Package retrigger is the job that runs the skipped steps of completed deprovisionings again
// (docs/contracts/broker.md#jobs). The broker starts a new deprovisioning with only those steps.
package retrigger

import (
	"context"
	"errors"
	"fmt"

	brokerapi "github.com/kyma-project/keb/libs/api/broker"
	"github.com/kyma-project/keb/services/jobs/internal/batch"
	"github.com/kyma-project/keb/services/jobs/internal/broker"
)

// Name is the name of the job.
const Name = "deprovision-retrigger"

// Broker has the methods of the broker that the job needs.
type Broker interface {
	Runtimes(ctx context.Context, f broker.Filter) ([]brokerapi.Runtime, error)
	RetriggerDeprovisioning(ctx context.Context, instanceID string, dryRun bool) (operation string, err error)
	batch.Follower
}

// Run finds the instances and retriggers each. In a dry run it asks the broker whether it would retrigger the instance. It returns an error if
// the job could not begin or complete. Failures of single instances are in the report.
func Run(ctx context.Context, opts batch.Options, b Broker) (batch.Report, error) {
	report := batch.Report{Job: Name, DryRun: opts.DryRun, Failed: []batch.Failure{}}
	found, err := b.Runtimes(ctx, broker.Filter{States: []brokerapi.RuntimeState{brokerapi.RuntimeIncomplete}})
	if err != nil {
		return report, fmt.Errorf("%s: %w", Name, err)
	}
	return batch.Run(ctx, report, opts.Parallel, found, broker.ID, func(ctx context.Context, r brokerapi.Runtime) (batch.Outcome, error) {
		operation, err := b.RetriggerDeprovisioning(ctx, r.InstanceID, opts.DryRun)
		// Another client retriggered the instance, or it was removed, after it was listed.
		if errors.Is(err, broker.ErrGone) || errors.Is(err, broker.ErrConflict) {
			return batch.Skipped, nil
		}
		if err != nil {
			return batch.Skipped, err
		}
		if opts.DryRun && operation != "" {
			return batch.Skipped, nil
		}
		outcome, err := batch.Follow(ctx, opts, b, r.InstanceID, operation)
		if err != nil || outcome != batch.Completed {
			return outcome, err
		}
		return outcome, stillIncomplete(ctx, b, r.InstanceID)
	})
}

// stillIncomplete returns an error if the new deprovisioning succeeded but skipped a step again.
func stillIncomplete(ctx context.Context, b Broker, instanceID string) error {
	left, err := b.Runtimes(ctx, broker.Filter{States: []brokerapi.RuntimeState{brokerapi.RuntimeIncomplete}, Instance: instanceID})
	switch {
	case err != nil:
		return &batch.StartedError{Err: err}
	case len(left) > 0:
		return &batch.StartedError{Err: errors.New("the deprovisioning skipped some of its steps again")}
	}
	return nil
}
