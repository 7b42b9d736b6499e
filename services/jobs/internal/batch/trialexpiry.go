package batch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	brokerapi "github.com/kyma-project/keb/libs/api/broker"
	"github.com/kyma-project/keb/services/jobs/internal/broker"
)

// TrialExpiryName is the name of the job.
const TrialExpiryName = "trial-expiry"

// ExpiryBroker has the methods of the broker that the job needs.
type ExpiryBroker interface {
	Runtimes(ctx context.Context, f broker.Filter) ([]brokerapi.Runtime, error)
	Expire(ctx context.Context, instanceID string) (operation string, err error)
	Follower
}

// expiryStates returns the expiryStates of the instances that can expire. The broker only marks a suspended instance. It ignores one in deprovisioning.
func expiryStates() []brokerapi.RuntimeState {
	return []brokerapi.RuntimeState{brokerapi.RuntimeSucceeded, brokerapi.RuntimeFailed, brokerapi.RuntimeError, brokerapi.RuntimeUpgrading, brokerapi.RuntimeUpdating, brokerapi.RuntimeSuspended}
}

// ExpireTrials expires old instances of the plans trial and free (docs/contracts/broker.md#suspension-and-expiry): those that are older than
// the age of their plan. It includes expired instances whose suspension was rejected or failed. In a dry run it only finds them. It
// returns an error if the job could not begin or complete. Failures of single instances are in the report.
func ExpireTrials(ctx context.Context, opts Options, ages map[string]time.Duration, b ExpiryBroker, now func() time.Time) (Report, error) {
	report := Report{Job: TrialExpiryName, DryRun: opts.DryRun, Failed: []Failure{}}
	listed, err := b.Runtimes(ctx, broker.Filter{Plans: slices.Sorted(maps.Keys(ages)), States: expiryStates()})
	if err != nil {
		return report, fmt.Errorf("%s: %w", TrialExpiryName, err)
	}
	at := now()
	due := slices.DeleteFunc(listed, func(r brokerapi.Runtime) bool {
		age, ok := ages[r.ServicePlanName]
		done := !r.Status.ExpiredAt.IsZero() && r.Status.State == brokerapi.RuntimeSuspended
		// An instance without a creation time must not count as old.
		return !ok || done || r.Status.CreatedAt.IsZero() || at.Sub(r.Status.CreatedAt) <= age
	})
	return Run(ctx, report, opts.Parallel, due, broker.ID, func(ctx context.Context, r brokerapi.Runtime) (Outcome, error) {
		if opts.DryRun {
			return Started, nil
		}
		operation, err := b.Expire(ctx, r.InstanceID)
		if errors.Is(err, broker.ErrGone) {
			return Skipped, nil
		}
		if err != nil {
			return Skipped, err
		}
		return Follow(ctx, opts, b, r.InstanceID, operation)
	})
}
