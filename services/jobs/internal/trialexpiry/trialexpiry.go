// Package trialexpiry is the job that lets instances of the plans trial and free expire once their time is over
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

// Name of the job.
const Name = "trial-expiry"

// Broker is what the job needs of the broker.
type Broker interface {
	Runtimes(ctx context.Context, f broker.Filter) ([]brokerapi.Runtime, error)
	Expire(ctx context.Context, instanceID string) (operation string, err error)
	batch.Follower
}

// states of an instance that can expire. A suspended one is only marked; one that is on its way out needs nothing.
func states() []brokerapi.RuntimeState {
	return []brokerapi.RuntimeState{brokerapi.RuntimeSucceeded, brokerapi.RuntimeFailed, brokerapi.RuntimeError, brokerapi.RuntimeUpgrading, brokerapi.RuntimeUpdating, brokerapi.RuntimeSuspended}
}

// Run finds the instances of the plans in ages that are older than the age of their plan, and lets each expire that has not, or whose
// suspension was refused or failed when it did. In a dry run it only finds them. The error says why the work could not be begun or not be ended; what failed for single
// instances is in the report.
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
		// Without its age an instance must not be taken for an old one.
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
