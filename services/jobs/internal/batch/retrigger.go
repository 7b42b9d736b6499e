package batch

import (
	"context"
	"errors"
	"fmt"

	brokerapi "github.com/kyma-project/keb/libs/api/broker"
	"github.com/kyma-project/keb/services/jobs/internal/broker"
)

// RetriggerName is the name of the job.
const RetriggerName = "deprovision-retrigger"

// RetriggerBroker has the methods of the broker that the job needs.
type RetriggerBroker interface {
	Runtimes(ctx context.Context, f broker.Filter) ([]brokerapi.Runtime, error)
	RetriggerDeprovisioning(ctx context.Context, instanceID string, dryRun bool) (operation string, err error)
	Follower
}

// Retrigger runs the skipped steps of completed deprovisionings again: the broker starts a new deprovisioning with only those steps. It
// finds the instances and retriggers each. In a dry run it asks the broker whether it would retrigger the instance. It returns an error if
// the job could not begin or complete. Failures of single instances are in the report.
func Retrigger(ctx context.Context, opts Options, b RetriggerBroker) (Report, error) {
	report := Report{Job: RetriggerName, DryRun: opts.DryRun, Failed: []Failure{}}
	found, err := b.Runtimes(ctx, broker.Filter{States: []brokerapi.RuntimeState{brokerapi.RuntimeIncomplete}})
	if err != nil {
		return report, fmt.Errorf("%s: %w", RetriggerName, err)
	}
	return Run(ctx, report, opts.Parallel, found, broker.ID, func(ctx context.Context, r brokerapi.Runtime) (Outcome, error) {
		operation, err := b.RetriggerDeprovisioning(ctx, r.InstanceID, opts.DryRun)
		// Another client retriggered the instance, or it was removed, after it was listed.
		if errors.Is(err, broker.ErrGone) || errors.Is(err, broker.ErrConflict) {
			return Skipped, nil
		}
		if err != nil {
			return Skipped, err
		}
		if opts.DryRun && operation != "" {
			return Skipped, nil
		}
		outcome, err := Follow(ctx, opts, b, r.InstanceID, operation)
		if err != nil || outcome != Completed {
			return outcome, err
		}
		return outcome, stillIncomplete(ctx, b, r.InstanceID)
	})
}

// stillIncomplete returns an error if the new deprovisioning succeeded but skipped a step again.
func stillIncomplete(ctx context.Context, b RetriggerBroker, instanceID string) error {
	left, err := b.Runtimes(ctx, broker.Filter{States: []brokerapi.RuntimeState{brokerapi.RuntimeIncomplete}, Instance: instanceID})
	switch {
	case err != nil:
		return &StartedError{Err: err}
	case len(left) > 0:
		return &StartedError{Err: errors.New("the deprovisioning skipped some of its steps again")}
	}
	return nil
}
