// Package subaccountcleanup is the job that deprovisions the instances of sub-accounts that were deleted (docs/contracts/broker.md#jobs). It
// reads them from the events of the cloud inventory, in either version of its API.
package subaccountcleanup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	brokerapi "github.com/kyma-project/keb/libs/api/broker"
	"github.com/kyma-project/keb/services/jobs/internal/batch"
	"github.com/kyma-project/keb/services/jobs/internal/broker"
)

// Name of the job.
const Name = "subaccount-cleanup"

// UserAgent is what the deprovisionings are asked for as: it selects the soft clean-up of the BTP objects, as there is nobody left
// who could deal with them (docs/contracts/broker.md#requests).
const UserAgent = "accountcleanup-job"

// chunk is how many sub-accounts are looked up at once.
const chunk = 50

// Inventory knows which sub-accounts are gone.
type Inventory interface {
	// DeletedSubaccounts are their ids, each once.
	DeletedSubaccounts(ctx context.Context) ([]string, error)
}

// Broker is what the job needs of the broker. Its client must call itself UserAgent.
type Broker interface {
	Runtimes(ctx context.Context, f broker.Filter) ([]brokerapi.Runtime, error)
	Deprovision(ctx context.Context, r brokerapi.Runtime) (operation string, err error)
	batch.Follower
}

// states of an instance that is still to be taken away. One whose deprovisioning has ended incompletely is the business of the
// retrigger; one that is being deprovisioned is asked for again, as it may only be about to be suspended.
func states() []brokerapi.RuntimeState {
	return []brokerapi.RuntimeState{
		brokerapi.RuntimeSucceeded, brokerapi.RuntimeFailed, brokerapi.RuntimeError, brokerapi.RuntimeProvisioning, brokerapi.RuntimeDeprovisioning, brokerapi.RuntimeUpgrading, brokerapi.RuntimeUpdating,
		brokerapi.RuntimeSuspended,
	}
}

// Run finds the instances of deleted sub-accounts and asks for each to be taken away. In a dry run it only finds them. The error says
// why the work could not be begun or not be ended; what failed for single instances is in the report.
func Run(ctx context.Context, opts batch.Options, inventory Inventory, b Broker) (batch.Report, error) {
	report := batch.Report{Job: Name, DryRun: opts.DryRun, Failed: []batch.Failure{}}
	gone, err := inventory.DeletedSubaccounts(ctx)
	if err != nil {
		return report, fmt.Errorf("%s: %w", Name, err)
	}
	var found []brokerapi.Runtime
	for subaccounts := range slices.Chunk(gone, chunk) {
		listed, err := b.Runtimes(ctx, broker.Filter{Subaccounts: subaccounts, States: states()})
		if err != nil {
			return report, fmt.Errorf("%s: %w", Name, err)
		}
		for _, r := range listed {
			// A broker that does not know the filter would give all instances; none of the others may be touched.
			if slices.Contains(subaccounts, r.SubAccountID) {
				found = append(found, r)
			}
		}
	}
	return batch.Run(ctx, report, opts.Parallel, found, broker.ID, func(ctx context.Context, r brokerapi.Runtime) (batch.Outcome, error) {
		if opts.DryRun {
			return batch.Started, nil
		}
		operation, err := b.Deprovision(ctx, r)
		if errors.Is(err, broker.ErrGone) {
			return batch.Skipped, nil
		}
		if err != nil {
			return batch.Skipped, err
		}
		return batch.Follow(ctx, opts, b, r.InstanceID, operation)
	})
}
