// Package trialexpiry is the job that expires old instances of the plans trial and free
// (docs/contracts/broker.md#suspension-and-expiry).
package trialexpiry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	brokerapi "github.com/kyma-project/keb/libs/api/broker"
	"github.com/kyma-project/keb/services/jobs/internal/batch"
	"github.com/kyma-project/keb/services/jobs/internal/broker"
)

// Name is the name of the job.
const Name = "trial-expiry"

// Broker has the methods of the broker that the job needs.
type Broker interface {
	Runtimes(ctx context.Context, f broker.Filter) ([]brokerapi.Runtime, error)
	Expire(ctx context.Context, instanceID string) (operation string, err error)
	batch.Follower
}

// states returns the states of the instances that can expire. The broker only marks a suspended instance. It ignores one in deprovisioning.
func states() []brokerapi.RuntimeState {
	return []brokerapi.RuntimeState{brokerapi.RuntimeSucceeded, brokerapi.RuntimeFailed, brokerapi.RuntimeError, brokerapi.RuntimeUpgrading, brokerapi.RuntimeUpdating, brokerapi.RuntimeSuspended}
}

// Run finds the instances that are older than the age of their plan, and expires each. It includes expired instances whose suspension was
// rejected or failed. In a dry run it only finds them. It returns an error if the job could not begin or complete. Failures of single
// instances are in the report.
func Run(ctx context.Context, opts batch.Options, ages map[string]time.Duration, b Broker, now func() time.Time) (batch.Report, error) {
	report := batch.Report{Job: Name, DryRun: opts.DryRun, Failed: []batch.Failure{}}
	listed, err := b.Runtimes(ctx, broker.Filter{Plans: slices.Sorted(maps.Keys(ages)), States: states()})
	if err != nil {
		return report, fmt.Errorf("%s: %w", Name, err)
	}
	at := now()
	due := slices.DeleteFunc(listed, func(r brokerapi.Runtime) bool {
		age, ok := ages[r.ServicePlanName]
		done := !r.Status.ExpiredAt.IsZero() && r.Status.State == brokerapi.RuntimeSuspended
		// An instance without a creation time must not count as old.
		return !ok || done || r.Status.CreatedAt.IsZero() || at.Sub(r.Status.CreatedAt) <= age
	})
	return batch.Run(ctx, report, opts.Parallel, due, broker.ID, func(ctx context.Context, r brokerapi.Runtime) (batch.Outcome, error) {
		if opts.DryRun {
			return batch.Started, nil
		}
		operation, err := b.Expire(ctx, r.InstanceID)
		if errors.Is(err, broker.ErrGone) {
			return batch.Skipped, nil
		}
		if err != nil {
			return batch.Skipped, err
		}
		return batch.Follow(ctx, opts, b, r.InstanceID, operation)
	})
}
