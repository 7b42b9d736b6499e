// Package retrigger is the job that takes up deprovisionings again which have ended without some of their steps
// (docs/contracts/broker.md#jobs): the broker starts a new one with only those.
package retrigger

import (
	"context"
	"errors"
	"fmt"

	brokerapi "github.com/kyma-project/keb/libs/api/broker"
	"github.com/kyma-project/keb/services/jobs/internal/batch"
	"github.com/kyma-project/keb/services/jobs/internal/broker"
)

// Name of the job.
const Name = "deprovision-retrigger"

// Broker is what the job needs of the broker.
type Broker interface {
	Runtimes(ctx context.Context, f broker.Filter) ([]brokerapi.Runtime, error)
	RetriggerDeprovisioning(ctx context.Context, instanceID string, dryRun bool) (operation string, err error)
	batch.Follower
}

// Run finds the instances and retriggers each. In a dry run the broker is asked whether it would. The error says why the work
// could not be begun or not be ended; what failed for single instances is in the report.
func Run(ctx context.Context, opts batch.Options, b Broker) (batch.Report, error) {
	report := batch.Report{Job: Name, DryRun: opts.DryRun, Failed: []batch.Failure{}}
	found, err := b.Runtimes(ctx, broker.Filter{States: []brokerapi.RuntimeState{brokerapi.RuntimeIncomplete}})
	if err != nil {
		return report, fmt.Errorf("%s: %w", Name, err)
	}
	return batch.Run(ctx, report, opts.Parallel, found, broker.ID, func(ctx context.Context, r brokerapi.Runtime) (batch.Outcome, error) {
		operation, err := b.RetriggerDeprovisioning(ctx, r.InstanceID, opts.DryRun)
		// Somebody else has retriggered it, or it has gone, since it was listed.
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

// stillIncomplete is an error if the new deprovisioning has passed over a step once more: it has succeeded all the same.
func stillIncomplete(ctx context.Context, b Broker, instanceID string) error {
	left, err := b.Runtimes(ctx, broker.Filter{States: []brokerapi.RuntimeState{brokerapi.RuntimeIncomplete}, Instance: instanceID})
	switch {
	case err != nil:
		return &batch.StartedError{Err: err}
	case len(left) > 0:
		return &batch.StartedError{Err: errors.New("the deprovisioning has ended without some of its steps once more")}
	}
	return nil
}
